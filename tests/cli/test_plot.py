"""`esopt plot` on small run folders: which picture comes where, and what is refused."""

import json

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from esopt_jax.cli.main import main
from esopt_jax.config import to_yaml
from esopt_jax.config_reader import from_dict


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two seeds of one config and a run of another, below the working folder."""
    monkeypatch.chdir(tmp_path)
    for name, seed, sigma in (("a", 0, 0.1), ("b", 1, 0.1), ("c", 0, 0.2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(to_yaml(from_dict({"es": {"seed": seed, "sigma": sigma}})))
        rows = [{"generation": g, "fitness/mean": g * sigma, "fitness/best": 1.0, "sigma": sigma} for g in range(3)]
        rows.append({"generation": 3, "eval/solve_rate": sigma, "eval/ci_low": 0.0, "eval/ci_high": 1.0})
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved."""
    figures = []
    save = Figure.savefig

    def remember(figure, *args, **kwargs):
        figures.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", remember)
    return figures


def test_one_run_is_its_reward_curve(runs, capsys, drawn):
    assert main(["plot", "a"]) == 0
    assert capsys.readouterr().out == "a/reward_curve.png\n"
    assert matplotlib.image.imread("a/reward_curve.png").shape[2] == 4
    assert "population mean" in drawn[0].axes[0].get_legend_handles_labels()[1]


def test_several_runs_are_a_line_a_group(runs, capsys, drawn):
    assert main(["plot", "a", "b", "c"]) == 0
    assert capsys.readouterr().out == "curves.png\n"
    fitness, held_out = drawn[0].axes
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.texts] == ["es.sigma=0.1 (n=2, min..max)", "es.sigma=0.2 (n=1)"]
    for axes, values in ((fitness, [[0, 0.1, 0.2], [0, 0.2, 0.4]]), (held_out, [[0.1], [0.2]])):
        for line, expected in zip(axes.lines, values, strict=True):
            np.testing.assert_allclose(line.get_ydata(), expected)
    assert "held-out solve rate" in held_out.get_ylabel()


def test_a_metric_of_any_name(runs, capsys, drawn):
    assert main(["plot", "a", "c", "--metric", "fitness/best", "--out", "best.svg"]) == 0
    assert main(["plot", "a", "--metric", "fitness/best"]) == 0
    assert capsys.readouterr().out == "best.svg\nfitness_best.png\n"
    assert (runs / "best.svg").read_text().lstrip().startswith("<?xml")
    assert [len(figure.axes[0].lines) for figure in drawn] == [2, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "run folder 'nowhere' does not exist"),
        (["."], "'.' is no run folder: it has no config.yaml; did you mean 'a'?"),
        (["a", "--metric", "fitness/maen"], "has no metric 'fitness/maen'; did you mean 'fitness/mean'?"),
        (["a", "--out", "a.txt"], "--out 'a.txt' ends in '.txt'"),
        (["a", "--out", "none/a.png"], "'none' is not a folder"),
        (["empty"], "holds no complete row yet"),
        (["broken"], "line 1 is no valid row"),
    ],
)
def test_what_is_refused(runs, capsys, words, message):
    for name, text in (("empty", '{"gen'), ("broken", "{\n{}\n")):
        (runs / name).mkdir()
        (runs / name / "config.yaml").touch()
        (runs / name / "metrics.jsonl").write_text(text)
    assert main(["plot", *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not list(runs.glob("**/*.png"))


def test_times_are_stacked_and_are_those_of_the_metrics(runs, capsys, drawn):
    rows = [{"generation": g, "time/decode_s": 1.0 + g, "time/prefill_s": 2.0, "time/update_s": 0.5} for g in range(3)]
    rows.append({"generation": 0, "time/eval_s": 4.0})
    (runs / "a" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["plot", "a", "--times"]) == 0
    assert capsys.readouterr().out == "a/times.png\n"
    (axes,) = drawn[0].axes
    tops = [max(bar.get_y() + bar.get_height() for part in axes.containers for bar in (part[g],)) for g in range(3)]
    np.testing.assert_allclose(tops, [7.5, 4.5, 5.5])
    assert main(["plot", "b", "--times"]) == 2
    assert "no generation that says where its time went" in capsys.readouterr().err
    assert main(["plot", "a", "b", "--times"]) == 2
