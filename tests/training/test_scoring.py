import math

import numpy as np
import pytest

from esopt_jax.errors import StoppedError
from esopt_jax.training.metrics import episode_metrics
from esopt_jax.training.scoring import gain, score
from esopt_jax.types import Trajectory, Turn


def _turn(*, invalid=False, truncated=False, tokens=3):
    ids = tuple(range(tokens))
    return Turn((1, 2), ids, "text", 0.0, invalid=invalid, truncated=truncated, seconds=0.1)


def _episode(case, outcome, *, member=-1, turns=None, reward=None, error=None):
    turns = (_turn(),) if turns is None else turns
    reward = {"success": 1.0, "failure": 0.0, "error": math.nan}[outcome] if reward is None else reward
    return Trajectory(0, member, case, f"task-{case}", 0, turns, outcome, reward, reward, error)


def test_counts_turns_and_invalid_actions():
    episodes = [
        _episode(0, "success", turns=(_turn(), _turn(invalid=True))),
        _episode(1, "failure", turns=(_turn(), _turn(), _turn(), _turn())),
    ]
    result = score(episodes, cases=range(2), seed=0)
    assert (result.mean, result.episodes, result.mean_turns) == (0.5, 2, 3.0)
    assert result.invalid_action_rate == pytest.approx(1 / 6)
    assert set(result.record()) == {"metric", "mean", "ci95", "episodes", "mean_turns", "invalid_action_rate", "faults"}
    assert result.record()["metric"] == "solve_rate"


def test_an_infrastructure_error_is_neither_success_nor_failure():
    episodes = [_episode(0, "success"), _episode(0, "error", error="boom"), _episode(1, "error", error="boom")]
    result = score(episodes, cases=range(2), seed=0)
    assert (result.mean, result.episodes, result.faults) == (1.0, 1, 2)
    assert list(result.played) == [1, 0]


def test_nothing_but_errors_stops_with_the_commonest_reason():
    episodes = [_episode(0, "error", error="service down")] * 2 + [_episode(1, "error", error="other")]
    with pytest.raises(StoppedError, match="every one of 3 evaluation episodes failed: service down"):
        score(episodes, cases=range(2), seed=0)


def test_cases_may_be_any_task_indices_in_any_order():
    episodes = [_episode(40, "success"), _episode(7, "failure"), _episode(40, "success")]
    result = score(episodes, cases=np.array([7, 40]), seed=0)
    assert (list(result.solved), list(result.played)) == ([0, 2], [1, 2])


def test_gain_is_paired_over_tasks_that_both_could_play():
    before = score([_episode(c, "failure") for c in range(20)], cases=range(20), seed=0)
    after = score([_episode(c, "success" if c < 5 else "failure") for c in range(20)], cases=range(20), seed=0)
    result = gain(before, after, seed=0)
    assert result["mean"] == 0.25
    assert 0.0 < result["ci95"][0] < 0.25 < result["ci95"][1] < 0.5
    episodes = [_episode(0, "error", error="x"), *[_episode(c, "success") for c in range(1, 20)]]
    faulty = score(episodes, cases=range(20), seed=0)
    assert gain(before, faulty, seed=0)["mean"] == 1.0


def test_episode_metrics_have_trl_meanings():
    episodes = [
        _episode(0, "success", member=0, turns=(_turn(tokens=4, truncated=True),)),
        _episode(0, "failure", member=1, turns=(_turn(tokens=2), _turn(tokens=3, invalid=True))),
        _episode(1, "failure", member=0),
        _episode(1, "failure", member=1),
        _episode(2, "error", member=0, turns=(_turn(tokens=5),), error="boom"),
    ]
    row = episode_metrics(episodes)
    assert row["reward"] == 0.25 and row["reward_std"] == 0.25 and row["frac_reward_zero_std"] == 0.5
    assert row["completions/mean_length"] == pytest.approx((4 + 2 + 3 + 3 + 3) / 5)
    assert row["completions/clipped_ratio"] == pytest.approx(1 / 5)
    assert row["invalid_action_rate"] == pytest.approx(1 / 5)
    assert (row["episodes"], row["faults"], row["turns/mean"], row["tokens"]) == (4, 1, 1.25, 20)


def test_a_case_that_one_member_could_play_says_nothing_of_spread():
    apart = [_episode(0, "success", member=0), _episode(0, "failure", member=1)]
    alone = [_episode(1, "failure", member=0), _episode(1, "error", member=1, error="boom")]
    row = episode_metrics(apart + alone)
    assert (row["reward_std"], row["frac_reward_zero_std"]) == (0.5, 0.0)


def test_metrics_of_no_episode_are_missing_not_zero():
    row = episode_metrics([_episode(0, "error", turns=(), error="boom")])
    assert np.isnan(row["reward"]) and row["episodes"] == 0
