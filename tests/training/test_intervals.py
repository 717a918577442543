import numpy as np
import pytest

from esopt_jax.training.intervals import gain_interval, rate_interval, wilson_interval


def test_large_sample_agrees_with_the_normal_approximation():
    n, p = 4000, 0.3
    solved = (np.arange(n) < n * p).astype(float)
    low, high = rate_interval(solved, np.ones(n), seed=0)
    half = 1.96 * (p * (1 - p) / n) ** 0.5
    assert low == pytest.approx(p - half, abs=0.1 * half)
    assert high == pytest.approx(p + half, abs=0.1 * half)


def test_repeats_of_one_puzzle_add_no_certainty_when_they_always_agree():
    rate = (np.arange(64) % 4 == 0).astype(float)
    once = rate_interval(rate, np.ones(64), seed=1)
    ten_times = rate_interval(10 * rate, np.full(64, 10), seed=1)
    assert ten_times == pytest.approx(once)
    as_if_independent = rate_interval(np.repeat(rate, 10), np.ones(640), seed=1)
    assert as_if_independent[1] - as_if_independent[0] < 0.5 * (once[1] - once[0])


def test_coverage_on_correlated_repeats():
    """Puzzles of rate 0 or 1 (30 % easy), 3 repeats: the truth lies inside about 95 % of the time."""
    draw = np.random.default_rng(0)
    trials, inside = 200, 0
    for trial in range(trials):
        easy = draw.random(80) < 0.3
        solved = np.where(easy, draw.binomial(3, 0.9, 80), draw.binomial(3, 0.1, 80))
        low, high = rate_interval(solved, np.full(80, 3), seed=trial)
        inside += low <= 0.3 * 0.9 + 0.7 * 0.1 <= high
    assert 0.90 <= inside / trials <= 0.985


@pytest.mark.parametrize("rate", [0.0, 1.0, 0.5])
def test_equal_puzzles_never_give_zero_width(rate):
    low, high = rate_interval(np.full(20, 2 * rate), np.full(20, 2), seed=0)
    assert low <= rate <= high
    assert high - low > 0.1


def test_wilson_zero_successes_closed_form():
    z2 = 1.959963985**2
    assert wilson_interval(0.0, 50) == pytest.approx((0.0, z2 / (50 + z2)))
    assert wilson_interval(1.0, 50) == pytest.approx((50 / (50 + z2), 1.0))


def test_wilson_solves_its_defining_equation():
    for bound in wilson_interval(0.2, 30):
        assert (0.2 - bound) ** 2 == pytest.approx(1.959963985**2 * bound * (1 - bound) / 30)


def test_unequal_numbers_of_episodes_weigh_episodes_not_puzzles():
    solved, played = np.array([9.0, 0.0] * 30), np.array([9.0, 1.0] * 30)
    low, high = rate_interval(solved, played, seed=0)
    assert low < 0.9 < high and low > 0.5


def test_interval_follows_from_the_seed():
    played = 1.0 + np.arange(50)
    solved = np.floor(played / 3)
    assert rate_interval(solved, played, seed=3) == rate_interval(solved, played, seed=3)
    assert rate_interval(solved, played, seed=3) != rate_interval(solved, played, seed=4)


def test_gain_uses_the_pairing():
    before = (np.arange(100) % 2).astype(float)
    after = np.where(np.arange(100) < 4, 1.0, before)  # two more solved
    ones = np.ones(100)
    low, high = gain_interval((before, after), (ones, ones), seed=0)
    assert 0.0 <= low < 0.02 < high < 0.06


def test_gain_between_degenerate_arms_is_wide_and_honest():
    zeros, ones = np.zeros(10), np.ones(10)
    low, high = gain_interval((zeros, ones), (ones, ones), seed=0)
    assert 0.5 < low < 0.9 and high == 1.0
    low, high = gain_interval((zeros, zeros), (ones, ones), seed=0)
    assert low < -0.2 and high > 0.2


def test_refuses_a_puzzle_without_episodes():
    with pytest.raises(ValueError, match="at least one"):
        rate_interval(np.zeros(2), np.array([1, 0]), seed=0)
    with pytest.raises(ValueError, match="at least one"):
        rate_interval(np.zeros(0), np.zeros(0), seed=0)
