"""Runs are grouped by everything but their seed, and a line is the median over a group."""

import json

import pytest

from esopt_jax.config import to_yaml
from esopt_jax.config_reader import from_dict
from esopt_jax.errors import EsoptError
from esopt_jax.reporting.groups import check_metric, group_runs, line_of, read_runs


@pytest.fixture
def make_run(tmp_path):
    """A run folder of `fitness/mean` values, one a generation."""

    def make(name, values, *, tree=None, seed=0):
        folder = tmp_path / name
        folder.mkdir()
        tree = {"preset": name, **(tree or {})}
        config = from_dict({**tree, "es": {**tree.get("es", {}), "seed": seed}})
        (folder / "config.yaml").write_text(to_yaml(config))
        rows = [{"generation": g, "fitness/mean": value} for g, value in enumerate(values)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return make


def test_seeds_are_one_group_and_the_name_is_what_differs(make_run):
    folders = [
        make_run("a", [0], seed=0),
        make_run("b", [0], tree={"es": {"sigma": 0.5}}, seed=0),
        make_run("c", [0], tree={"log": {"progress": "none"}, "description": "again"}, seed=1),
        make_run("d", [0], tree={"train": {"checkpoint_every": 3}, "rollout": {"workers": 3}}, seed=2),
    ]
    groups = group_runs(read_runs(folders))
    assert [group.name for group in groups] == ["es.sigma=0.001", "es.sigma=0.5"]
    assert [[run.path.name for run in group.runs] for group in groups] == [["a", "c", "d"], ["b"]]


def test_one_group_is_called_after_its_preset(make_run):
    assert [group.name for group in group_runs(read_runs([make_run("toy", [0])]))] == ["toy"]


def test_options_of_an_environment_are_told_apart(make_run):
    trees = [{"env": {"options": {"mask": mask}}} for mask in (4, 6)]
    groups = group_runs(read_runs([make_run(f"m{i}", [0], tree=tree) for i, tree in enumerate(trees)]))
    assert [group.name for group in groups] == ["env.options={'mask': 4}", "env.options={'mask': 6}"]


def test_a_folder_given_twice_counts_once(make_run):
    folder = make_run("a", [0])
    assert len(read_runs([folder, folder / ".." / "a"])) == 1


def _line(make_run, *series):
    (group,) = group_runs(read_runs([make_run(f"s{i}", own, seed=i) for i, own in enumerate(series)]))
    return line_of(group, "fitness/mean")


def test_few_runs_lie_between_their_outermost(make_run):
    line = _line(make_run, [0, 1], [10, 3], [2, 2])
    assert (line.median, line.low, line.high) == ([2, 2], [0, 1], [10, 3])


def test_many_runs_lie_between_their_deciles(make_run):
    line = _line(make_run, *([value] for value in range(11)))
    assert (line.median, line.low, line.high) == ([5], [1], [9])


def test_a_line_ends_with_the_shortest_run_and_skips_what_is_null(make_run):
    line = _line(make_run, [1, None, 3, 9], [3, None, 5], [5, None, 4, 9, 9])
    assert (line.generations, line.median) == ([0, 2], [3, 4])


@pytest.mark.parametrize("text", ["", '{"generation": 0, "fitne'])
def test_run_without_a_complete_row(make_run, text):
    folder = make_run("a", [])
    (folder / "metrics.jsonl").write_text(text)
    with pytest.raises(EsoptError, match="holds no complete row yet: there is nothing to draw"):
        read_runs([folder])


def test_unknown_metric_names_the_nearest(make_run):
    runs = read_runs([make_run("a", [0])])
    check_metric(runs, "fitness/mean")
    for name in ("fitness/maen", "generation"):
        with pytest.raises(EsoptError, match=f"has no metric '{name}'; .*fitness/mean"):
            check_metric(runs, name)
