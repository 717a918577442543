"""From what the members of a population wrote to their rewards. Pure; higher is better.

Two rules. `ranked` is ours: members that were shown the same parents are compared with each other alone, by rank, and a
broken program never outranks a working one. The `published` ones are kept as they were, faults included: a working
program a little better than the worst of the population can get less than a broken one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from esopt_jax.errors import EsoptError
from esopt_jax.search.program import Program

Rule = Literal["ranked", "published", "published_zero"]
Floats = npt.NDArray[np.float64]

_SPREAD = 1e-8


def ranked_rewards(losses: npt.ArrayLike, groups: npt.ArrayLike) -> Floats:
    """Ranks within each group, scaled to -0.5 .. 0.5 and centred: the best of a group is at the top.

    Equal losses share the mean of their ranks; programs that are invalid share the lowest ranks. Every group sums to 0,
    so neither an easy parent nor one whose children break says anything for its members. Ranks keep one absurd
    objective from deciding the whole update.

    Args:
        losses: `[P]`, smaller is better; NaN where the program is invalid.
        groups: `[P]` integers; members with equal ones were asked the same.

    Returns:
        `[P]`; 0 for a member that is alone in its group.

    Example:
        >>> ranked_rewards([3.0, 1.0, np.nan, 9.0, 9.0], [0, 0, 0, 1, 1]).tolist()
        [0.0, 0.5, -0.5, 0.0, 0.0]
    """
    values = np.where(np.isnan(np.asarray(losses, np.float64)), np.inf, np.asarray(losses, np.float64))
    found, kinds = np.zeros(len(values)), np.asarray(groups)
    for group in np.unique(kinds):
        mine = kinds == group
        part = values[mine]
        worse = (part[:, None] < part[None]).sum(axis=1) + (part[:, None] == part[None]).sum(axis=1) / 2 - 0.5
        found[mine] = worse / max(1, len(part) - 1) - 0.5 * (len(part) > 1)
    return found


def improvement_rewards(losses: npt.ArrayLike, parents: npt.ArrayLike, worst: float) -> Floats:
    """The published rule of m1 and m2: `P - C`, or `P - min(W, P + 1)` for a child that is invalid or worse than W.

    Args:
        losses: `[P]` of the children C; NaN where invalid.
        parents: `[P]` of the parents P.
        worst: W, the largest loss in the population that the parents are from.

    Example:
        >>> improvement_rewards([1.0, 5.9, np.nan, 7.0], [4.0, 4.0, 4.0, 4.0], 6.0).tolist()
        [3.0, -1.9000000000000004, -1.0, -1.0]
    """
    child, parent = np.asarray(losses, np.float64), np.asarray(parents, np.float64)
    with np.errstate(invalid="ignore"):
        usable = np.isfinite(child) & (child <= worst)
    return np.where(usable, parent - np.where(usable, child, 0.0), parent - np.minimum(worst, parent + 1))


def sample_rewards(losses: npt.ArrayLike) -> Floats:
    """The published rule of i1: `-C`; an invalid program is one standard deviation below the worst valid one.

    Where the valid ones do not differ, that is `max(1 % of their mean, 1)` below. All 0 where none is valid.

    Args:
        losses: `[P]`; NaN where invalid.

    Example:
        >>> sample_rewards([1.0, 3.0, np.nan]).tolist()
        [-1.0, -3.0, -4.0]
    """
    rewards = -np.asarray(losses, np.float64)
    valid = np.isfinite(rewards)
    if not valid.any():
        return np.zeros(len(rewards))
    known = rewards[valid]
    spread = float(known.std())
    gap = spread if spread > _SPREAD else max(0.01 * abs(float(known.mean())), 1.0)
    return np.where(valid, rewards, known.min() - gap)


def valid_zscores(rewards: npt.ArrayLike, valid: npt.ArrayLike) -> Floats:
    """The published ablation: z-scores among the valid programs, 0 for the others.

    Args:
        rewards: `[P]`.
        valid: `[P]` booleans.

    Example:
        >>> valid_zscores([1.0, 3.0, 99.0], [True, True, False]).tolist()
        [-1.0, 1.0, 0.0]
    """
    values, known = np.asarray(rewards, np.float64), np.asarray(valid, bool)
    found = np.zeros(len(values))
    if known.any():
        spread = float(values[known].std())
        if spread > _SPREAD:
            found[known] = (values[known] - values[known].mean()) / spread
    return found


def batch_rewards(
    rule: Rule,
    losses: Sequence[float],
    *,
    shown: Sequence[Sequence[float]],
    population: Sequence[float],
    groups: Sequence[int],
) -> Floats:
    """The rewards of a batch under a rule.

    Args:
        rule: of the config.
        losses: `[P]`; NaN where invalid.
        shown: for each, the losses of the parents that it was shown; empty for i1.
        population: losses of the population that they are from.
        groups: `[P]`, equal for members that were asked the same.

    Raises:
        EsoptError: an unknown rule.
    """
    values = np.asarray(losses, np.float64)
    if rule == "ranked":
        return ranked_rewards(values, groups)
    if rule not in ("published", "published_zero"):
        raise EsoptError(f"es.rewards is {rule!r}; allowed: ranked, published, published_zero")
    if any(len(parents) for parents in shown):
        found = improvement_rewards(values, [min(parents) for parents in shown], max(population))
    else:
        found = sample_rewards(values)
    return found if rule == "published" else valid_zscores(found, np.isfinite(values))


def losses_of(programs: Sequence[Program], direction: Literal["min", "max"]) -> list[float]:
    """Losses, NaN where a program is invalid."""
    return [program.loss(direction) if program.valid else float("nan") for program in programs]
