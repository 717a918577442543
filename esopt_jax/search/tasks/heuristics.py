"""What the ant colonies are told: one matrix of numbers per instance, checked before any ant walks."""

from __future__ import annotations

import numpy as np

from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError

_FLOOR = 1e-9
_RANGE = 1e-30
"""What float32 holds below the largest entry, with room for the pheromone; no ant chooses smaller entries anyway."""


def checked_heuristics(
    outputs: Arrays, shape: tuple[int, ...], *, dtype: type[np.floating] = np.float32, non_finite: bool = False
) -> np.ndarray:
    """The heuristics of a program as attraction, `[instances, n, n]`: above 0 and at most 1.

    Entries below 1e-9 count as 1e-9. Each matrix is divided by its largest entry, which changes no choice and keeps
    sums in range.

    Args:
        outputs: `heuristics`, of `shape`.
        shape: `(instances, n, n)`.
        dtype: In which the entries must be finite, and in which they are returned.
        non_finite: Replace NaN by 0 and infinities by the largest number instead of refusing them.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, or an entry that is not finite.

    Example:
        >>> checked_heuristics({"heuristics": np.array([[[0.0, 2.0], [4.0, 1.0]]])}, (1, 2, 2), dtype=np.float64)
        array([[[2.5e-10, 5.0e-01],
                [1.0e+00, 2.5e-01]]])
    """
    given = outputs.get("heuristics")
    if given is None or given.shape != shape or given.dtype.kind not in "iuf":
        got = "nothing" if given is None else f"{given.dtype} {given.shape}"
        raise InvalidSolutionError(f"heuristics: {got}; numbers of shape {shape} are needed")
    with np.errstate(over="ignore"):
        cast = given.astype(dtype)
    if non_finite:
        cast = np.nan_to_num(cast)
    wrong = np.flatnonzero(~np.isfinite(cast).all(axis=(1, 2)))
    if wrong.size:
        raise InvalidSolutionError(f"the heuristics of instance {wrong[0]} are not all finite in {np.dtype(dtype)}")
    floored = np.maximum(cast, dtype(_FLOOR))
    scaled: np.ndarray = np.maximum(floored / floored.max(axis=(1, 2), keepdims=True), dtype(_RANGE))
    return scaled
