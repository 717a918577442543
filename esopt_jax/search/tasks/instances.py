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
    return _pairs(split, size, published=1234, stream=0)


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
    return _pairs(split, size, published=3333, stream=10)


def bpp_demands(split: Split, size: int) -> np.ndarray:
    """Sizes of the items to pack into bins, `[instances, size]` int32, from 20 to 100.

    The training set of 500 items is the published one.

    Raises:
        EsoptError: No items.

    Example:
        >>> demands = bpp_demands("train", 500)
        >>> float(np.ceil(demands.sum(axis=1) / 150).mean())  # no packing into bins of 150 has fewer
        199.6
    """
    if size < 1:
        raise EsoptError(f"bins for {size} items: at least 1 is needed; choose a larger --size")
    if split == "train":
        return np.random.RandomState(5).randint(20, 101, (5, size)).astype(np.int32)
    return np.random.default_rng([_OWN_SEEDS[split] + 20, size]).integers(20, 101, (64, size), dtype=np.int32)


def cvrp_customers(split: Split, size: int) -> np.ndarray:
    """A depot and its customers, `[instances, size + 1, 3]` float64: demand, then place in the unit square.

    Row 0 is the depot: demand 0, at (0.5, 0.5). Demands are whole numbers from 1 to 9. The training set of 50
    customers is the published one.

    Raises:
        EsoptError: No customers.

    Example:
        >>> cvrp_customers("train", 50)[0, 0].tolist()
        [0.0, 0.5, 0.5]
    """
    if size < 1:
        raise EsoptError(f"routes to {size} customers: at least 1 is needed; choose a larger --size")
    count = 10 if split == "train" else 64
    customers = np.zeros((count, size + 1, 3))
    customers[:, 0, 1:] = 0.5
    if split == "train":
        draws = np.random.RandomState(1234)
        for instance in customers:  # one after the other: the published order of the draws
            instance[1:, 1:] = draws.rand(size, 2)
            instance[1:, 0] = draws.randint(1, 10, size)
        return customers
    rng = np.random.default_rng([_OWN_SEEDS[split] + 30, size])
    customers[:, 1:, 1:] = rng.random((count, size, 2))
    customers[:, 1:, 0] = rng.integers(1, 10, (count, size))
    return customers


def _pairs(split: Split, size: int, *, published: int, stream: int) -> np.ndarray:
    """Pairs drawn evenly from 0 to 1, `[instances, size, 2]`, from the published seed or a stream of our own."""
    shape = (_COUNTS[split], size, 2)
    if split == "train":
        return np.random.RandomState(published).rand(*shape)
    return np.random.default_rng([_OWN_SEEDS[split] + stream, size]).random(shape)
