"""Confidence intervals of a solve rate, by resampling puzzles.

The unit is the puzzle: repeats of one puzzle are not independent, so a resample draws puzzles with replacement and
keeps all the repeats of each. Percentile bootstrap, Efron and Tibshirani (1993), section 13.3.

When every puzzle has the same rate (all solved, none solved) the bootstrap has zero width however few puzzles there
are. There the Wilson score interval with n = number of puzzles is given instead: Wilson (1927); for the difference of
two rates Newcombe (1998), method 10.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np

Interval = tuple[float, float]
LEVEL = 0.95
RESAMPLES = 10_000
_BLOCK = 1 << 20  # resampled puzzles drawn at a time: bounds the scratch at a few tens of MB


def rate_interval(solved: np.ndarray, played: np.ndarray, *, seed: int) -> Interval:
    """95 % interval of `sum(solved) / sum(played)`.

    Args:
        solved: `[n]` successes per puzzle.
        played: `[n]` episodes per puzzle that count, at least 1 each (drop the puzzles without any before).
        seed: of the resampling; equal inputs and seed give the equal interval.

    Returns:
        `(low, high)` within [0, 1].

    Raises:
        ValueError: no puzzle, or one without an episode.

    Example:
        >>> low, high = rate_interval(np.zeros(100), np.ones(100), seed=0)
        >>> low, round(high, 4)
        (0.0, 0.037)
    """
    _check(played)
    if _constant(solved / played):
        return wilson_interval(float(solved[0] / played[0]), len(solved))
    return _percentile(lambda rows: solved[rows].sum(1) / played[rows].sum(1), len(solved), seed)


def gain_interval(
    solved: tuple[np.ndarray, np.ndarray], played: tuple[np.ndarray, np.ndarray], *, seed: int
) -> Interval:
    """95 % interval of the rate after minus the rate before, on the same puzzles.

    Args:
        solved: (before, after), each `[n]` successes per puzzle, in the same order of puzzles.
        played: (before, after), each `[n]` episodes per puzzle that count, at least 1 each.
        seed: of the resampling.

    Returns:
        `(low, high)` within [-1, 1]. The pairing makes it narrower than two separate intervals suggest.
    """
    for arm in played:
        _check(arm)
    (s0, s1), (n0, n1) = solved, played
    if _constant(s1 / n1 - s0 / n0):
        return _newcombe(float(s0.sum() / n0.sum()), float(s1.sum() / n1.sum()), len(s0))
    return _percentile(
        lambda rows: s1[rows].sum(1) / n1[rows].sum(1) - s0[rows].sum(1) / n0[rows].sum(1), len(s0), seed
    )


def wilson_interval(rate: float, n: int, level: float = LEVEL) -> Interval:
    """Score interval of a binomial proportion: never of zero width for a finite `n`.

    Example:
        >>> low, high = wilson_interval(0.5, 10)
        >>> round(low, 4), round(high, 4)
        (0.2366, 0.7634)
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (rate * (1 - rate) / n + z * z / (4 * n * n)) ** 0.5
    return (0.0 if rate == 0 else centre - half, 1.0 if rate == 1 else centre + half)


def _newcombe(before: float, after: float, n: int) -> Interval:
    (low0, high0), (low1, high1) = wilson_interval(before, n), wilson_interval(after, n)
    down = ((after - low1) ** 2 + (high0 - before) ** 2) ** 0.5
    up = ((high1 - after) ** 2 + (before - low0) ** 2) ** 0.5
    return (max(-1.0, after - before - down), min(1.0, after - before + up))


def _percentile(statistic: Callable[[np.ndarray], np.ndarray], n: int, seed: int) -> Interval:
    draw = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    sizes = [min(block, RESAMPLES - start) for start in range(0, RESAMPLES, block)]
    values = np.concatenate([statistic(draw.integers(n, size=(size, n))) for size in sizes])
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _constant(rates: np.ndarray) -> bool:
    return bool(np.all(rates == rates[0]))


def _check(played: np.ndarray) -> None:
    if len(played) == 0 or np.min(played) < 1:
        raise ValueError("an interval needs at least one puzzle, and every puzzle at least one episode that counts")
