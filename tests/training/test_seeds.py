"""Several seeds: one folder each, one aggregate, and the same command goes on."""

import json
import statistics

import pytest
from same_run import check_same

from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.training import seeds as module
from esopt_jax.training.run import Run
from esopt_jax.training.seeds import aggregate, parse_seeds, spread, train_seeds


@pytest.mark.parametrize(
    ("text", "found"), [("0..4", [0, 1, 2, 3, 4]), ("7", [7]), ("3, 1..2", [3, 1, 2]), ("4294967295", [2**32 - 1])]
)
def test_seeds_are_read(text, found):
    assert parse_seeds(text) == found


@pytest.mark.parametrize("text", ["", "a", "4..0", "1..2..3", "-1", "1,1", "0..99999", "1;2", "²"])
def test_what_is_no_list_of_seeds_is_refused(text):
    with pytest.raises(EsoptError, match="--seeds"):
        parse_seeds(text)


def test_the_interval_is_students():
    found = spread([1.0, 2.0, 4.0])
    sd = statistics.stdev([1, 2, 4])
    half = 4.302652729911275 * sd / 3**0.5  # t(0.975, 2 degrees of freedom), from a table
    assert found["sd"] == pytest.approx(sd) and found["median"] == 2.0
    assert found["ci95"] == pytest.approx([7 / 3 - half, 7 / 3 + half])
    assert spread([0.5]) == {"mean": 0.5, "sd": None, "median": 0.5, "ci95": None, "values": [0.5]}


def test_what_no_seed_measured_is_null():
    record = {"mean": 0.5}
    summary = {"preset": "p", "base": record, "final": record, "gain": record, "best_random": None}
    assert aggregate({0: summary, 1: summary})["best_random"] is None


def test_each_seed_is_the_run_it_would_be_alone(make_config, tmp_path):
    config = make_config(es__generations=1)
    found = train_seeds(config, [5, 2], tmp_path / "all")
    alone = module.train(module.load_config(tmp_path / "all" / "seed-2" / "config.yaml"), tmp_path / "alone")
    check_same(tmp_path / "all" / "seed-2", alone.folder)
    assert found["seeds"] == [5, 2] and found == json.loads((tmp_path / "all" / "aggregate.json").read_text())
    assert found["final"]["values"][1] == alone.summary["final"]["mean"]


def test_stopped_in_the_second_seed_the_same_call_goes_on(make_config, tmp_path, monkeypatch):
    config, began = make_config(es__generations=1), []

    def train(config, folder, **kwargs):
        began.append(config.es.seed)

        def at(moment):
            if config.es.seed == 1 and moment == "after_row":
                raise StoppedError("enough")

        return module_train(config, folder, at=at, **kwargs)

    module_train = module.train
    monkeypatch.setattr(module, "train", train)
    with pytest.raises(StoppedError, match="enough"):
        train_seeds(config, [0, 1, 2], tmp_path / "all")
    found = train_seeds(config, [0, 1, 2], tmp_path / "all")
    assert began == [0, 1, 2]  # seed 1 was resumed, seed 0 left alone
    assert all(Run(tmp_path / "all" / f"seed-{seed}").summary["status"] == "finished" for seed in range(3))
    assert len(found["final"]["values"]) == 3
    with pytest.raises(EsoptError, match=r"seed-0' holds a run of another config"):
        train_seeds(make_config(es__generations=2), [0], tmp_path / "all")


def test_a_folder_with_other_things_in_it_is_refused(make_config, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(EsoptError, match="is not empty and holds no seeds"):
        train_seeds(make_config(), [0], tmp_path)
