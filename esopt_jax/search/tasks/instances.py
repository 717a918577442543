"""Instances drawn from seeds or read from a file: published training sets, validation and test sets of our own."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

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


def read_array(path: Path) -> np.ndarray:
    """The array of a `.npy` file, or the only one of an `.npz` file.

    Raises:
        EsoptError: No such file, or something else in it.
    """
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            if len(loaded.files) != 1:
                names = ", ".join(loaded.files)
                raise EsoptError(f"{path} holds {len(loaded.files)} arrays ({names}); one is needed")
            array: np.ndarray = loaded[loaded.files[0]]
            return array
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as fault:
        raise EsoptError(f"{path} is no file of an array: {fault}; .npy or .npz with one array is needed") from None


def check_array(array: np.ndarray, what: str, shape: tuple[int | None, ...]) -> None:
    """Refuse what holds no instances: finite numbers of a shape, where None stands for any length above 0.

    Raises:
        EsoptError: Another shape, no numbers, or some that are not finite.

    Example:
        >>> check_array(np.zeros((4, 50)), "cities", (None, None, 2))
        Traceback (most recent call last):
        esopt_jax.errors.EsoptError: cities: float64 of shape (4, 50); finite numbers of shape (any, any, 2) are needed
    """
    fits = array.ndim == len(shape) and all(
        got > 0 and wanted in (None, got) for got, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        wanted = "(" + ", ".join("any" if length is None else str(length) for length in shape) + ")"
        raise EsoptError(f"{what}: {array.dtype} of shape {array.shape}; finite numbers of shape {wanted} are needed")


def instance_seeds(count: int, size: int, *, offset: int = 0) -> np.ndarray:
    """A seed for each instance, `[count]` int64: the same for every program, as published for the ant colonies.

    Args:
        count: Instances.
        size: Of each of them.
        offset: What a task adds, so that no two tasks share seeds.

    Example:
        >>> instance_seeds(3, 50).tolist()
        [51234, 51235, 51236]
    """
    return 1234 + offset + size * 1000 + np.arange(count)


def _pairs(split: Split, size: int, *, published: int, stream: int) -> np.ndarray:
    """Pairs drawn evenly from 0 to 1, `[instances, size, 2]`, from the published seed or a stream of our own."""
    shape = (_COUNTS[split], size, 2)
    if split == "train":
        return np.random.RandomState(published).rand(*shape)
    return np.random.default_rng([_OWN_SEEDS[split] + stream, size]).random(shape)
