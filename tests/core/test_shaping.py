import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esopt_jax.core.shaping import METHODS, center_cases, shape_fitness
from esopt_jax.errors import EsoptError

populations = st.lists(st.integers(-20, 20), min_size=2, max_size=40).map(lambda xs: np.array(xs) / 8)


def test_zscore_is_standard():
    fitness = np.array([0.0, 1.0, 2.0, 5.0])
    shaped = shape_fitness(fitness, method="zscore")
    assert shaped.weights.dtype == np.float32
    assert shaped.spread == pytest.approx(np.sqrt(3.5))
    assert shaped.weights == pytest.approx((fitness - 2) / np.sqrt(3.5))
    assert np.sum(shaped.weights.astype(np.float64) ** 2) == pytest.approx(4)


def test_mid_ranks():
    assert shape_fitness([3.0, 1.0, 2.0], method="centered_rank").weights.tolist() == [0.5, -0.5, 0.0]
    assert shape_fitness([0, 1, 0, 1, 1], method="centered_rank").weights.tolist() == [-0.375, 0.25, -0.375, 0.25, 0.25]


def test_none_is_the_fitness():
    assert shape_fitness([1.0, 2.5], method="none").weights.tolist() == [1.0, 2.5]


@given(populations, st.sampled_from(METHODS), st.randoms())
def test_invariants(fitness, method, random):
    shaped = shape_fitness(fitness, method=method)
    equal = np.ptp(fitness) == 0
    assert shaped.degenerate == equal
    if equal:
        assert (shaped.weights == 0).all()
        return
    order = list(range(len(fitness)))
    random.shuffle(order)
    moved = shape_fitness(fitness[order], method=method).weights
    assert moved == pytest.approx(shaped.weights[order], abs=1e-6)  # members carry no index
    assert (np.diff(shaped.weights[np.argsort(fitness, kind="stable")]) >= 0).all()  # better is never less
    if method != "none":
        assert shaped.weights.sum() == pytest.approx(0, abs=1e-4)
    if method == "centered_rank":
        assert abs(shaped.weights).max() <= 0.5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fitness", [[0.1] * 8, [0.1, 0.1 + 1e-9], [1e6, 1e6 + 0.5], [0.0, -0.0]])
def test_rounding_noise_is_no_fitness(method, fitness):
    shaped = shape_fitness(fitness, method=method)
    assert shaped.degenerate
    assert (shaped.weights == 0).all()


def test_near_equal_float32_rewards_do_not_explode():
    rewards = np.full(32, 0.7, np.float32)
    rewards[3] = np.nextafter(rewards[3], np.float32(1))  # one last bit apart
    assert shape_fitness(rewards, method="zscore").degenerate


def test_small_but_real_differences_count():
    assert not shape_fitness([0.0, 1e-5], method="zscore").degenerate


def test_bad_input():
    with pytest.raises(EsoptError, match="did you mean 'zscore'"):
        shape_fitness([1, 2], method="z_score")
    with pytest.raises(EsoptError, match=r"members \[1\]"):
        shape_fitness([1, np.nan], method="zscore")
    with pytest.raises(EsoptError, match="at least 2 members"):
        shape_fitness([1.0], method="zscore")


def test_centering_removes_the_difficulty_of_cases():
    rng = np.random.default_rng(0)
    skill, difficulty = rng.standard_normal((6, 1)), 100 * rng.standard_normal((1, 4))
    centered = center_cases(skill + difficulty)
    assert centered.sum(axis=0) == pytest.approx(np.zeros(4), abs=1e-10)
    assert centered == pytest.approx(np.broadcast_to(skill - skill.mean(), (6, 4)))
