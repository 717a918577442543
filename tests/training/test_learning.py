"""The loop learns when rewards mean something, and only then."""

import json

import pytest

from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train

_LEARN = {
    "es__population_size": 32,
    "es__generations": 40,
    "es__sigma": 0.05,
    "es__alpha": 0.05,
    "rollout__cases": 16,
    "eval__episodes": 64,
    "eval__repeats": 4,
    "log__trajectories": "none",
}


def _gain(config, path):
    return train(config, path).summary["gain"]


def test_rewards_are_learned_and_shuffled_rewards_are_not(make_config, tmp_path):
    learned = _gain(make_config(**_LEARN), tmp_path / "learned")
    shuffled = _gain(make_config(**_LEARN, es__control="shuffled_rewards"), tmp_path / "shuffled")
    assert learned["ci95"][0] > 0.15
    assert shuffled["mean"] < 0.1
    assert learned["ci95"][0] > shuffled["ci95"][1]


def test_zero_update_leaves_every_bit(make_config, tmp_path):
    summary = train(make_config(es__control="zero_update"), tmp_path / "run").summary
    rows = read(tmp_path / "run" / "history.jsonl")
    assert summary["digest"] == rows[0]["base_digest"]
    assert summary["final"] == summary["base"]
    assert summary["updates_skipped"] == summary["generations"] == 2
    assert not (tmp_path / "run" / "trajectories").joinpath("gen_00002.jsonl.gz").exists()


@pytest.mark.parametrize(
    "variant",
    [
        {"es__plan": "low_rank", "es__master": "split", "model__dtype": "bfloat16"},
        {"es__antithetic": True, "es__members_per_pass": 4},
    ],
    ids=["low-rank split bfloat16", "antithetic in passes"],
)
def test_other_plans_run_and_move_the_weights(make_config, tmp_path, variant):
    run = train(make_config(**variant, eval__best_random=True), tmp_path / "run")
    rows = read(run.folder / "history.jsonl")
    assert rows[-1]["digest"] != rows[0]["base_digest"]
    assert json.loads((run.folder / "summary.json").read_text())["status"] == "finished"
