"""Items packed into bins along a heuristic: the program says beforehand which items go well together."""

from __future__ import annotations

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.heuristics import check_heuristics
from esopt_jax.search.tasks.instances import bpp_demands, check_array, instance_seeds
from esopt_jax.search.tasks.runner_parts import COMMON, MATRIX
from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError, Task

CAPACITY = 150
SEED_OFFSET = 20_000_000
_RANGE = (1e-6, 1e6)
_CELLS = 2**23
"""Of all matrices of a run: 64 MiB."""

_RUNNER = (
    COMMON
    + MATRIX
    + '''

def run(program, inputs):
    """One matrix of attraction per instance."""
    heuristics_v2, heuristics = function(program, "heuristics_v2"), []
    for demands, seed in zip(inputs["demands"], inputs["seeds"]):
        repeatable(seed)
        answer = heuristics_v2(demands.copy(), int(inputs["capacity"]))
        heuristics.append(matrix(answer, (len(demands), len(demands))))
    return {"heuristics": np.array(heuristics)}
'''
)


def _inputs(array: np.ndarray) -> Arrays:
    check_array(array, "items", (None, None))
    if array.min() < 1 or array.max() > CAPACITY or (array % 1).any():
        raise EsoptError(
            f"items: sizes from {array.min():g} to {array.max():g}; allowed: whole numbers from 1 to {CAPACITY}, which "
            "fills a bin"
        )
    seeds = instance_seeds(*array.shape, offset=SEED_OFFSET)
    return {"demands": array.astype(np.int32), "capacity": np.array(CAPACITY), "seeds": seeds}


def bins_used(inputs: Arrays, bins: np.ndarray) -> np.ndarray:
    """How many bins are used, `[instances]` float64.

    Args:
        inputs: `demands` `[instances, n]` and `capacity` `[]`.
        bins: `[instances, n]` integers, the bin of every item.

    Raises:
        InvalidSolutionError: A bin over its capacity.

    Example:
        >>> inputs = {"demands": np.array([[70, 90, 80]]), "capacity": np.array(150)}
        >>> bins_used(inputs, np.array([[0, 1, 0]]))
        array([2.])
    """
    capacity = int(inputs["capacity"])
    used = np.zeros(len(bins))
    for instance, (row, demands) in enumerate(zip(bins, inputs["demands"], strict=True)):
        _, place = np.unique(row, return_inverse=True)
        loads = np.bincount(place, weights=demands)
        if loads.max() > capacity:
            raise InvalidSolutionError(f"a bin of instance {instance} holds {loads.max():g}, over {capacity}")
        used[instance] = len(loads)
    return used


def fewest(inputs: Arrays, outputs: Arrays) -> np.ndarray:
    """Bins of the best packings along the heuristics, `[instances]` float64.

    Entries are cut to 1e-6 .. 1e6; their scale does not matter.

    Args:
        inputs: `demands` `[instances, n]`, `capacity` `[]` and `seeds` `[instances]`.
        outputs: `heuristics` `[instances, n, n]`.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, an entry that is not finite, or no entry above 0.
    """
    from esopt_jax.search.tasks.bpp_packings import fewest_bins

    demands = inputs["demands"]
    given = check_heuristics(outputs, (*demands.shape, demands.shape[1]))
    useless = np.flatnonzero(given.max(axis=(1, 2)) <= 0)
    if useless.size:
        raise InvalidSolutionError(f"the heuristics of instance {useless[0]} have no entry above 0")
    cut = np.clip(given, *_RANGE)
    attraction = cut / cut.max(axis=(1, 2), keepdims=True)
    bins = fewest_bins(inputs["seeds"].astype(np.uint32), attraction, demands, inputs["capacity"].astype(np.int32))
    return bins_used(inputs, np.asarray(bins))


ACO_BPP = Task(
    name="aco_bpp",
    signature="def heuristics_v2(demand, capacity):",
    description=(
        "Say how well each two items go together in one bin, so that bins which are filled with items that go well "
        "together are few. demand holds the sizes of n items; those of a bin sum to capacity at most. Return an (n, n) "
        "array with some entry above 0; a larger number is a better match."
    ),
    direction="min",
    sizes={"train": (500,), "val": (500, 120, 1000), "test": (500, 1000)},
    draw=bpp_demands,
    inputs=_inputs,
    runner=_RUNNER,
    objectives=fewest,
    per_run=lambda inputs: max(1, _CELLS // inputs["demands"].shape[1] ** 2),
)
