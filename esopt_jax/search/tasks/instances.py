"""Instances drawn from seeds: the published training sets, and validation and test sets of our own."""

from __future__ import annotations

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.task import Split

_OWN_SEEDS = {"val": 101, "test": 102}
_COUNTS = {"train": 64, "val": 64, "test": 1000}


def tsp_cities(split: Split, size: int) -> np.ndarray:
    """Cities drawn evenly from the unit square, `[instances, size, 2]` float64.

    The training set of 50 cities is the published one. The other splits have streams of their own, one for each size.

    Raises:
        EsoptError: A size below 3.

    Example:
        >>> tsp_cities("val", 20).shape
        (64, 20, 2)
    """
    if size < 3:
        raise EsoptError(f"a tour of {size} cities: at least 3 are needed; choose a larger --size")
    count = _COUNTS[split]
    if split == "train":
        return np.random.RandomState(1234).rand(count, size, 2)
    return np.random.default_rng([_OWN_SEEDS[split], size]).random((count, size, 2))


def kp_items(split: Split, size: int) -> np.ndarray:
    """Weights and values drawn evenly from 0 to 1, `[instances, size, 2]` float64.

    The training set of 100 items is the published one.

    Raises:
        EsoptError: No items.

    Example:
        >>> kp_items("test", 50).shape
        (1000, 50, 2)
    """
    if size < 1:
        raise EsoptError(f"a knapsack of {size} items: at least 1 is needed; choose a larger --size")
    count = _COUNTS[split]
    if split == "train":
        return np.random.RandomState(3333).rand(count, size, 2)
    return np.random.default_rng([_OWN_SEEDS[split] + 10, size]).random((count, size, 2))
