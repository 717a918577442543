"""What the ant colonies are told: one matrix of numbers per instance, checked before any ant walks."""

from __future__ import annotations

import numpy as np

from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError

_FLOOR = 1e-9
_RANGE = 1e-30
"""What float32 holds below the largest entry, with room for the pheromone; no ant chooses smaller entries anyway."""


def check_heuristics(
    outputs: Arrays, shape: tuple[int, ...], *, dtype: type[np.floating] = np.float32, non_finite: bool = False
) -> np.ndarray:
    """The heuristics of a program, `[instances, n, n]` of `dtype`, if they are finite.

    Args:
        outputs: `heuristics`, of `shape`.
        shape: `(instances, n, n)`.
        dtype: In which the entries must be finite, and in which they are returned.
        non_finite: Replace NaN by 0 and infinities by the largest number instead of refusing them.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, or an entry that is not finite.
    """
    given = outputs.get("heuristics")
    if given is None or given.shape != shape or given.dtype.kind not in "iuf":
        got = "nothing" if given is None else f"{given.dtype} {given.shape}"
        raise InvalidSolutionError(f"heuristics: {got}; numbers of shape {shape} are needed")
    with np.errstate(over="ignore"):
        cast: np.ndarray = given.astype(dtype)
    if non_finite:
        np.nan_to_num(cast, copy=False)
    wrong = np.flatnonzero(~np.isfinite(cast).all(axis=(1, 2)))
    if wrong.size:
        raise InvalidSolutionError(f"the heuristics of instance {wrong[0]} are not all finite in {np.dtype(dtype)}")
    return cast


def as_attraction(heuristics: np.ndarray) -> np.ndarray:
    """Heuristics as attraction, above 0 and at most 1: entries below 1e-9 count as 1e-9.

    Each matrix is divided by its largest entry, which changes no choice and keeps sums in range.

    Example:
        >>> as_attraction(np.array([[[0.0, 2.0], [4.0, 1.0]]]))
        array([[[2.5e-10, 5.0e-01],
                [1.0e+00, 2.5e-01]]])
    """
    floored = np.maximum(heuristics, heuristics.dtype.type(_FLOOR))
    scaled = floored / floored.max(axis=(1, 2), keepdims=True)
    attraction: np.ndarray = np.maximum(scaled, heuristics.dtype.type(_RANGE))
    return attraction
