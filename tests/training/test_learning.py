"""The loop learns when rewards mean something, and only then."""

import pytest

from esopt_jax.training.evaluate import evaluate
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train

_LEARN = {
    "es__generations": 60,
    "es__sigma": 0.05,
    "es__alpha": 0.02,
    "eval__rows": 16,
    "eval__repeats": 8,
    "log__trajectories": "none",
}


def test_rewards_are_learned(make_config, tmp_path):
    gain = train(make_config(**_LEARN), tmp_path / "run").summary["gain"]
    assert gain["mean"] > 0.4 and gain["ci95"][0] > 0.3


def test_shuffled_rewards_are_not(make_config, tmp_path):
    """A random walk of the same length: with a model this small it moves behaviour, but not by what learning does."""
    gain = train(make_config(**_LEARN, es__control="shuffled_rewards"), tmp_path / "run").summary["gain"]
    assert gain["mean"] < 0.25


def test_zero_update_leaves_every_bit(make_config, tmp_path):
    summary = train(make_config(es__control="zero_update"), tmp_path / "run").summary
    rows = read(tmp_path / "run" / "history.jsonl")
    assert summary["digest"] == rows[0]["base_digest"]
    assert summary["final"] == summary["base"]
    assert summary["updates_skipped"] == summary["generations"] == 2


def test_an_evaluation_follows_from_its_own_seed_alone(make_config):
    base = evaluate(make_config()).record()
    assert evaluate(make_config(es__seed=9, es__population_size=4)).record() == base
    assert evaluate(make_config(eval__seed=9)).record() != base


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        {"es__plan": "low_rank", "es__master": "split", "model__dtype": "bfloat16"},
        {"es__antithetic": True, "es__members_per_pass": 4},
    ],
    ids=["low-rank split bfloat16", "antithetic in passes"],
)
def test_other_plans_learn_too(make_config, tmp_path, variant):
    run = train(make_config(**_LEARN, **variant, eval__best_random=True), tmp_path / "run")
    assert run.summary["gain"]["mean"] > 0.3
    assert run.summary["final"]["mean"] > run.summary["best_random"]["mean"]
