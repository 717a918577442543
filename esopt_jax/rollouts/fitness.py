"""From episodes to the fitness of each member, with infrastructure errors taken out rather than scored as 0.

A column is one case, or one repeat of a case: what all members play alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from esopt_jax.core.shaping import center_cases as center_columns
from esopt_jax.errors import StoppedError
from esopt_jax.types import Trajectory

FAULT_LIMIT = 0.5
"""Share of faults above which a case is dropped, and above which a generation is given up."""


@dataclass(frozen=True)
class MemberFitness:
    """Fitness of a population and what was left out to get it.

    Attributes:
        fitness: `[P]` float32, higher is better.
        returns: `[P, C]` float32, NaN where the episode faulted.
        dropped: columns with too many faults, left out for every member.
        faults: number of faulted episodes.
    """

    fitness: np.ndarray
    returns: np.ndarray
    dropped: tuple[int, ...]
    faults: int


def returns_of(episodes: Sequence[Sequence[Trajectory]]) -> np.ndarray:
    """Returns `[P, C]` float32 of members' episodes: the sum of rewards, NaN for infrastructure errors."""
    return np.array([[np.nan if e.outcome == "error" else e.reward for e in row] for row in episodes], np.float32)


def population_fitness(
    episodes: Sequence[Sequence[Trajectory]], *, common_random_numbers: bool, center_cases: bool = False
) -> MemberFitness:
    """The fitness of every member from its episodes, `[P][C]`.

    Raises:
        StoppedError: more than half of the episodes are infrastructure errors; names the most common reason.
    """
    returns = returns_of(episodes)
    faults = int(np.isnan(returns).sum())
    if faults > FAULT_LIMIT * returns.size:
        reason, times = common_fault([e for row in episodes for e in row])
        raise StoppedError(
            f"{faults} of {returns.size} episodes of a generation failed in the environment, {times} of them with: "
            f"{reason}; fix the environment, or raise rollout.step_timeout_s if it is only slow"
        )
    fitness, dropped = fitness_from_returns(
        returns, common_random_numbers=common_random_numbers, center_cases=center_cases
    )
    return MemberFitness(fitness=fitness, returns=returns, dropped=dropped, faults=faults)


def common_fault(episodes: Sequence[Trajectory]) -> tuple[str, int]:
    """The most frequent reason among the faulty episodes, and how often it was given."""
    reasons = Counter(episode.error or "no reason given" for episode in episodes if episode.outcome == "error")
    return reasons.most_common(1)[0] if reasons else ("no episode", 0)


def fitness_from_returns(
    returns: np.ndarray, *, common_random_numbers: bool, center_cases: bool = False
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Mean return of each member over the columns that count.

    A column with more than half of its entries missing is dropped for all members. With common random numbers, another
    missing entry takes the mean of the other members in its column; without, a member's mean is over what it has, and a
    member that has nothing takes the mean of the others.

    Args:
        returns: `[P, C]` float32, NaN where missing; at most half of it is.
        common_random_numbers: whether a column is the same draw for every member.
        center_cases: subtract each column's mean first.

    Returns:
        `[P]` float32 and the dropped columns.

    Example:
        >>> fitness, dropped = fitness_from_returns(
        ...     np.array([[1, 0], [np.nan, 1], [0, 1]], np.float32), common_random_numbers=True)
        >>> fitness.tolist(), dropped
        ([0.5, 0.75, 0.5], ())
    """
    missing = np.isnan(returns)
    bad = missing.mean(axis=0) > FAULT_LIMIT
    kept, missing = returns[:, ~bad].astype(np.float64), missing[:, ~bad]
    dropped = tuple(int(i) for i in np.flatnonzero(bad))
    columns = np.nanmean(kept, axis=0)
    filled = np.where(missing, columns, kept)
    if center_cases:
        filled = np.asarray(center_columns(filled.astype(np.float32)), np.float64)
    if common_random_numbers or not missing.any():
        return filled.mean(axis=1).astype(np.float32), dropped
    counts = (~missing).sum(axis=1)
    means = np.where(missing, 0, filled).sum(axis=1) / np.maximum(counts, 1)
    means = np.where(counts > 0, means, means[counts > 0].mean())
    return means.astype(np.float32), dropped
