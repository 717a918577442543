"""Schedules of sigma and alpha: host floats, one call a generation, exact at both ends."""

from __future__ import annotations

import math
from typing import Literal

from esopt_jax.errors import EsoptError, did_you_mean

KINDS = ("constant", "linear", "cosine")


def schedule(
    kind: Literal["constant", "linear", "cosine"],
    start: float,
    end: float,
    generation: int,
    generations: int,
    warmup: int = 0,
) -> float:
    """The value at `generation`.

    Holds `start` for `warmup` generations, then moves to `end`, which the last generation has exactly:
    `start + (end - start) w` with `w = p` (linear) or `(1 - cos(pi p)) / 2` (cosine), where `p` runs from 0 to 1 over
    the generations after the warm-up. A run of one generation, and `constant`, stay at `start`.

    Args:
        kind: shape of the path.
        start: first value.
        end: last value; ignored by `constant`.
        generation: 0-based; beyond the last one the last value holds.
        generations: length of the run.
        warmup: generations to hold `start`; at most all but the last.

    Raises:
        EsoptError: unknown kind, a value that is negative or not finite, negative warm-up or generation.

    Example:
        >>> [schedule("linear", 1.0, 0.5, g, 3) for g in range(3)]
        [1.0, 0.75, 0.5]
    """
    if kind not in KINDS:
        raise EsoptError(f"schedule {kind!r}: {did_you_mean(str(kind), KINDS)}")
    for name, value in (("start", start), ("end", end)):
        if not (math.isfinite(value) and value >= 0):
            raise EsoptError(f"schedule {name} is {value!r}; it must be a finite number, 0 or more")
    if warmup < 0 or generation < 0:
        raise EsoptError(f"schedule has warmup {warmup} and generation {generation}; both must be 0 or more")
    if kind == "constant" or generations <= 1:
        return start
    last = generations - 1
    hold = min(warmup, last)
    if generation >= last:
        return end
    if generation < hold:
        return start
    progress = (generation - hold) / max(1, last - hold)
    weight = progress if kind == "linear" else (1 - math.cos(math.pi * progress)) / 2
    return start + (end - start) * weight
