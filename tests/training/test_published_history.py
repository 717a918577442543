"""The published `history.json` as a record: what it says, what is odd in it, and what is no such file."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esopt_jax.cli.main import main
from esopt_jax.errors import EsoptError
from esopt_jax.training.published_history import as_dict, describe, read_published


def update(generation, /, **changes):
    row = {
        "generation": generation,
        "case_batch": ["a"],
        "sigma": 1e-3,
        "alpha": 5e-4,
        "reward_normalization": "zscore",
        "seeds": [100 * generation + i for i in range(3)],
        "rewards": [0.0, 0.5, 1.0],
    }
    return row | changes


SUDOKU = [
    {"config": {"population": 3, "alpha": 5e-4, "sigma_start": 1e-3, "reward_normalization": "zscore"}},
    {"generation": -1, "train_eval": {"solved": 1}, "eval": {"solved": 2}},
    update(0),
    {"resume": {"source": "old.json", "replayed_generations": 1}},
    update(1, eval={"solved": 3}, rewards=[0.5, 0.5, 2.0]),
]


@pytest.fixture
def write(tmp_path):
    def written(tree):
        path = tmp_path / "history.json"
        path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
        return path

    return written


def test_what_a_file_says(write):
    history = read_published(write(SUDOKU))
    assert [u.generation for u in history.updates] == [0, 1]
    assert history.updates[1].seeds == (100, 101, 102) and history.updates[1].rewards.tolist() == [0.5, 0.5, 2.0]
    assert (history.evaluations, history.resumes, history.oddities) == (2, 1, ())
    text = "\n".join(describe(history))
    for part in (
        "2 generations applied, 2 evaluations, 1 resumes",
        "0 .. 1",
        "0.001",
        "0.0005",
        "mean 0.5 first, 1 last",
    ):
        assert part in text
    assert "0 .. 2 over all members" in text and "config        population = 3" in text
    assert text.endswith("no weights can be rebuilt from it.") and "CUDA" in text


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        ([update(0), update(2)], "generations are not contiguous: 2 follows 0"),
        ([update(3)], "the first generation is 3, not 0"),
        ([update(0, alpha=1e-3)], "the config says alpha 0.0005, the rows have 0.001"),
        ([update(0), update(1, seeds=[1], rewards=[2.0])], "populations differ between generations: 1, 3"),
        ([update(0, seeds=[1], rewards=[2.0])], "the config says population 3, the rows have 1 members"),
        ([update(0), update(1, seeds=[0, 1, 7])], "2 seeds are used more than once"),
        ([update(0, rewards=[1, 1, 1])], "all rewards are equal, so nothing was learnt, in generations 0"),
        ([update(0, rewards=[float("nan"), 1, 2])], "1 rewards are not finite"),
        ([update(0), update(1, update_applied=False)], "row 2 says that its update was not applied"),
        ([update(0), SUDOKU[0]], "more than one config row"),
    ],
)
def test_what_does_not_fit_together_is_said(write, rows, odd):
    history = read_published(write([SUDOKU[0], *rows]))
    assert any(odd in text for text in history.oddities), history.oddities
    assert odd in "\n".join(describe(history))
    json.dumps(as_dict(history), allow_nan=False)


def test_a_file_without_config(write):
    assert read_published(write([update(0)])).oddities == ("there is no config row",)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("{", "cannot be read as a published history.json"),
        ({"kind": "header"}, "holds dict; a published history.json is a list of objects; a history of this package"),
        ([1, 2], "holds a list of 2 items; a published history.json is a list of objects"),
        ([], "holds neither a config nor an update row"),
        ([{"generation": -1, "eval": {}}], "holds neither a config nor an update row"),
        ([update(0, seeds=[1])], "row 0: an update needs"),
        ([update(0, rewards="high")], "row 0: an update needs"),
        ([update(0, rewards=[10**400, 1, 2])], "row 0: an update needs"),
        ([update(0, generation="first")], "row 0: an update needs"),
    ],
)
def test_another_format_is_one_clear_line(write, tree, message):
    with pytest.raises(EsoptError) as caught:
        read_published(write(tree))
    assert message in str(caught.value) and "\n" not in str(caught.value)


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
trees = st.recursive(leaves, lambda x: st.one_of(st.lists(x, max_size=3), st.dictionaries(st.text(max_size=3), x)))
keys = st.sampled_from(["config", "generation", "seeds", "rewards", "sigma", "alpha", "resume", "update_applied"])


@settings(max_examples=150, derandomize=True, deadline=None)
@given(rows=st.lists(st.one_of(st.dictionaries(keys, trees), trees), max_size=4))
def test_any_json_is_a_record_or_one_line(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("fuzz") / "history.json"
    path.write_text(json.dumps([*SUDOKU[:3], *rows]))
    try:
        history = read_published(path)
    except EsoptError as fault:
        assert "\n" not in str(fault)
        return
    assert describe(history)
    json.dumps(as_dict(history))


def test_the_command(write, tmp_path, capsys):
    assert main(["import-history", str(write(SUDOKU))]) == 0
    assert "2 generations applied" in capsys.readouterr().out
    assert main(["import-history", str(write(SUDOKU)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["updates"][1]["rewards"] == [0.5, 0.5, 2.0] and found["replayable"] is False
    assert main(["import-history", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
