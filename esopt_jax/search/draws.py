"""Random numbers named by what they are for: the same seed and names give the same number, on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def word(seed: int, *names: int | str) -> int:
    """A number in 0 .. 2^64-1.

    Example:
        >>> word(0, "parents", 3, 1) == word(0, "parents", 3, 1) != word(0, "parents", 1, 3)
        True
    """
    return int.from_bytes(hashlib.blake2s(repr((seed, *names)).encode(), digest_size=8).digest(), "little")


def uniform(seed: int, *names: int | str) -> float:
    """A number in [0, 1).

    Example:
        >>> 0 <= uniform(0, "parents") < 1
        True
    """
    return (word(seed, *names) >> 11) * 2.0**-53


def request_seed(seed: int, *names: int | str) -> int:
    """A number in 0 .. 2^31-1, which every server takes as a seed."""
    return word(seed, "request", *names) >> 33


def weighted(items: Sequence[T], weights: Sequence[float], at: float) -> T:
    """The item under `at` (0 to 1) where the items lie side by side, as wide as their weights.

    Example:
        >>> weighted("ab", [1.0, 3.0], 0.2), weighted("ab", [1.0, 3.0], 0.3)
        ('a', 'b')
    """
    left = at * sum(weights)
    for item, weight in zip(items, weights, strict=True):
        left -= weight
        if left < 0:
            return item
    return items[-1]  # rounding took `at` past the end
