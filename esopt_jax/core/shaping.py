"""From fitness to the weights of the update. Host arithmetic in float64: a population is a few hundred numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from esopt_jax.errors import EsoptError, did_you_mean

Shaping = Literal["zscore", "centered_rank", "none"]
METHODS = ("zscore", "centered_rank", "none")
DEGENERATE = 1e-6


@dataclass(frozen=True)
class ShapedFitness:
    """Weights of the members and whether fitness told them apart.

    Attributes:
        weights: `[P]` float32, larger for better members; all 0 when `degenerate`.
        spread: population standard deviation of the fitness (ddof 0).
        degenerate: the spread is below `1e-6 * max(1, |mean|)`: what differs is rounding, and normalising it would blow
            it up to a full-size random step.
    """

    weights: npt.NDArray[np.float32]
    spread: float
    degenerate: bool


def shape_fitness(fitness: npt.ArrayLike, *, method: Shaping) -> ShapedFitness:
    """Weights for the update from the fitness of a population.

    - `zscore`: `(f - mean) / std`, std with ddof 0, so that the squares sum to P.
    - `centered_rank`: ranks scaled to [-0.5, 0.5]; equal values share the mean of their ranks, so that a binary
      reward does not favour members by their index. Source: Salimans et al. (2017), section 2.1.
    - `none`: the fitness itself.

    Args:
        fitness: `[P]`, higher is better, finite.
        method: one of the above.

    Raises:
        EsoptError: unknown method, not a vector of at least 2 members, or a value that is not finite.

    Example:
        >>> shape_fitness([0.0, 1.0, 1.0], method="centered_rank").weights.tolist()
        [-0.5, 0.25, 0.25]
        >>> shape_fitness([0.3, 0.3], method="zscore").degenerate
        True
    """
    values = np.asarray(fitness, np.float64)
    if method not in METHODS:
        raise EsoptError(f"shaping {method!r}: {did_you_mean(str(method), METHODS)}")
    if values.ndim != 1 or len(values) < 2:
        raise EsoptError(f"fitness has shape {values.shape}; it must hold one number for each of at least 2 members")
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values)).tolist()
        raise EsoptError(f"fitness of members {bad} is not finite; exclude failed members before shaping")
    mean, spread = float(values.mean()), float(values.std())
    if spread < DEGENERATE * max(1.0, abs(mean)):
        return ShapedFitness(np.zeros(len(values), np.float32), spread, True)
    if method == "zscore":
        values = (values - mean) / spread
    elif method == "centered_rank":
        values = _mid_ranks(values) / (len(values) - 1) - 0.5
    return ShapedFitness(values.astype(np.float32), spread, False)


def center_cases(returns: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns with the population's mean on each case removed, so that a hard case weighs no less than an easy one.

    Args:
        returns: `[P, C]`, finite.

    Returns:
        `[P, C]` float64; every column sums to 0.

    Example:
        >>> center_cases([[1.0, 0.0], [0.0, 0.0]]).tolist()
        [[0.5, 0.0], [-0.5, 0.0]]
    """
    values: npt.NDArray[np.float64] = np.asarray(returns, np.float64)
    centered: npt.NDArray[np.float64] = values - values.mean(axis=0)
    return centered


def _mid_ranks(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """0-based ranks; equal values get the mean of the ranks they span."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    below = np.cumsum(count) - count
    return np.asarray((below + (count - 1) / 2)[group])
