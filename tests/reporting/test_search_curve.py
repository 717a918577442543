"""Pictures of searches: which are one line, what it shows, and what cannot be drawn."""

import argparse
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from esopt_jax.cli.ahd_search import add_plot_parser, run_plot_command
from esopt_jax.errors import EsoptError
from esopt_jax.reporting.search_curve import read_curves
from esopt_jax.search.config import from_mapping, to_yaml
from esopt_jax.search.program import Program, to_row
from esopt_jax.training.jsonl import encode


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the folder of a search with these objectives, one a call."""
    monkeypatch.chdir(tmp_path)

    def folder(name, objectives, *, task="construct_kp", **search):
        tree = {"name": name, "task": {"name": task}, "search": search, "writer": {"backend": "scripted"}}
        path = Path(name)
        path.mkdir()
        (path / "config.yaml").write_text(to_yaml(from_mapping(tree)))
        rows = [
            Program(call, 0, call, 0, "i1", (), 0, "", "", value, "" if value is not None else "bad", "")
            for call, value in enumerate(objectives)
        ]
        (path / "programs.jsonl").write_text("".join(encode(to_row(row)) + "\n" for row in rows))
        return path

    return folder


def esopt_ahd_plot(*words):
    parser = argparse.ArgumentParser()
    add_plot_parser(parser.add_subparsers())
    return run_plot_command(parser.parse_args(["plot", *map(str, words)]))


def test_seeds_are_one_line_and_methods_are_two(write):
    paths = [
        write("a", [None, 3.0, 2.0, 5.0], seed=0),
        write("b", [1.0, 1.0, 4.0], seed=1),
        write("c", [7.0, 8.0], method="sample"),
    ]
    (eoh, sample), title = read_curves(paths)
    assert (eoh.name, eoh.runs, sample.name, sample.runs) == ("search.method=eoh", 2, "search.method=sample", 1)
    assert eoh.calls.tolist() == [1, 2, 3] and sample.median.tolist() == [7.0, 8.0]
    np.testing.assert_equal(eoh.median, [np.nan, 2.0, 3.5])
    np.testing.assert_equal(eoh.low, [np.nan, 1.0, 3.0])
    np.testing.assert_equal(eoh.high, [np.nan, 3.0, 4.0])
    assert "construct_kp" in title


def test_smaller_is_better_where_the_task_says_so(write):
    (curve,), _ = read_curves([write("a", [3.0, 4.0, 2.0], task="construct_tsp")])
    assert curve.median.tolist() == [3.0, 3.0, 2.0]


def test_the_picture(write, capsys):
    write("a", [1.0, 2.0])
    write("b", [1.0, 3.0], seed=1)
    assert esopt_ahd_plot("a") == 0 and esopt_ahd_plot("a", "b") == 0 and esopt_ahd_plot("a", "--out", "x.png") == 0
    assert capsys.readouterr().out.split() == ["a/curve.png", "searches.png", "x.png"]
    assert matplotlib.image.imread("searches.png").shape[2] == 4


def test_what_cannot_be_drawn(write, tmp_path):
    one, other = write("a", [1.0]), write("b", [1.0], task="construct_tsp")
    with pytest.raises(EsoptError, match="several tasks"):
        read_curves([one, other])
    with pytest.raises(EsoptError, match="no program yet"):
        read_curves([write("c", [])])
    with pytest.raises(EsoptError, match="holds no search"):
        read_curves([tmp_path / "nowhere"])
    with pytest.raises(EsoptError, match="must end in"):
        esopt_ahd_plot("a", "--out", "x.gif")
