"""From fitness to coefficients, without any model."""

import numpy as np
import pytest

from esopt_jax.config import ESConfig
from esopt_jax.training.coefficients import coefficients, scheduled


def test_shuffled_rewards_are_a_new_permutation_every_generation():
    fitness = np.arange(16, dtype=np.float32)
    es = ESConfig(population_size=16, shaping="none", control="shuffled_rewards")
    first, second = (coefficients(fitness, es, g)[0] for g in (0, 1))
    assert sorted(first) == sorted(second) == list(fitness)
    assert list(first) != list(second) and list(first) != list(fitness)
    np.testing.assert_array_equal(first, coefficients(fitness, es, 0)[0])


def test_shuffled_rewards_carry_no_information_on_average():
    fitness = np.linspace(-1, 1, 8).astype(np.float32)
    es = ESConfig(population_size=8, shaping="none", control="shuffled_rewards")
    mean = np.mean([fitness @ coefficients(fitness, es, g)[0] for g in range(400)])
    assert abs(mean) < 4 * (fitness @ fitness) / np.sqrt(7) / np.sqrt(400)


def test_zero_update_has_no_coefficients_and_says_so():
    weights, reason = coefficients(np.arange(4, dtype=np.float32), ESConfig(control="zero_update"), 0)
    assert not weights.any() and "zero_update" in reason


@pytest.mark.parametrize("shaping", ["zscore", "centered_rank", "none"])
def test_equal_fitness_gives_no_update_and_says_so(shaping):
    weights, reason = coefficients(np.full(4, 0.3, np.float32), ESConfig(shaping=shaping), 0)
    assert not weights.any() and "same fitness (0.3)" in reason


def test_schedules_reach_both_ends_and_default_to_the_start():
    es = ESConfig(generations=5, sigma=0.02, sigma_end=0.01, sigma_schedule="cosine", alpha=0.5)
    assert [scheduled(es, "sigma", g) for g in (0, 4)] == [0.02, 0.01]
    assert {scheduled(es, "alpha", g) for g in range(5)} == {0.5}
    assert scheduled(ESConfig(generations=5, sigma=0.02, sigma_schedule="linear"), "sigma", 4) == 0.02
