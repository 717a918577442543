"""Faults are taken out, never scored."""

from __future__ import annotations

import math

import numpy as np
import pytest

from esopt_jax.errors import StoppedError
from esopt_jax.rollouts.fitness import fitness_from_returns, population_fitness
from esopt_jax.types import Trajectory

N = math.nan


def fitness(rows: list[list[float]], *, common: bool = True, **options: bool):
    return fitness_from_returns(np.array(rows, np.float32), common_random_numbers=common, **options)


def episode(reward: float, error: str | None = None) -> Trajectory:
    outcome = "error" if error else "success"
    return Trajectory(0, 0, 0, "t", 0, (), outcome, N if error else reward, N, error)


@pytest.mark.parametrize("common", [True, False])
def test_without_faults_it_is_the_mean_return(common):
    values, dropped = fitness([[1, 0, 1], [0, 0, 0.5]], common=common)
    np.testing.assert_allclose(values, [2 / 3, 1 / 6], rtol=1e-6)
    assert dropped == ()
    assert values.dtype == np.float32


def test_with_common_numbers_a_fault_takes_the_mean_of_the_others():
    values, _ = fitness([[1, 1], [0, N], [0, 0.5]])
    np.testing.assert_allclose(values, [1.0, 0.375, 0.25])


def test_without_common_numbers_a_member_is_judged_by_what_it_has():
    values, _ = fitness([[1, 1], [0, N], [N, 0.5], [N, N]], common=False)
    np.testing.assert_allclose(values, [1.0, 0.0, 0.5, 0.5])


@pytest.mark.parametrize("common", [True, False])
def test_a_case_with_mostly_faults_is_dropped_for_all_and_half_is_kept(common):
    values, dropped = fitness([[1, 0], [N, 1], [N, 0]], common=common)
    assert dropped == (0,)
    np.testing.assert_allclose(values, [0, 1, 0])
    assert fitness([[1, 0], [N, 1]], common=common)[1] == ()


@pytest.mark.parametrize("common", [True, False])
def test_centring_removes_what_all_members_share(common):
    easy = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]], np.float32)
    values, _ = fitness(easy.tolist(), common=common, center_cases=True)
    np.testing.assert_allclose(values, easy.mean(1) - easy.mean(), atol=1e-6)
    shifted, _ = fitness((easy + np.array([10, -3, 0])).tolist(), common=common, center_cases=True)
    np.testing.assert_allclose(shifted, values, atol=1e-6)


def test_a_fault_is_never_a_reward_of_0():
    """A member whose environment failed on the case that it would have solved ranks as if it had not been played."""
    found = population_fitness(
        [[episode(1), episode(1)], [episode(0, "hung"), episode(1)], [episode(1), episode(0)]],
        common_random_numbers=True,
    )
    assert found.faults == 1
    assert np.isnan(found.returns[1, 0])
    np.testing.assert_allclose(found.fitness, [1, 1, 0.5])


def test_mostly_faults_stop_the_run_and_name_the_usual_reason():
    rows = [[episode(1), episode(0, "boom"), episode(0, "rare")], [episode(0, "boom"), episode(0, "boom"), episode(1)]]
    with pytest.raises(StoppedError, match=r"4 of 6 .* 3 of them with: boom"):
        population_fitness(rows, common_random_numbers=True)
    assert StoppedError.exit_code == 3
    half = [[episode(1), episode(0, "boom")], [episode(0, "boom"), episode(1)]]
    assert population_fitness(half, common_random_numbers=True).faults == 2
