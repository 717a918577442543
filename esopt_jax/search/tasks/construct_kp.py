"""A knapsack filled item by item: the program chooses the next one."""

from __future__ import annotations

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.instances import check_array, instance_seeds, kp_items
from esopt_jax.search.tasks.runner_parts import COMMON
from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError, Task

CAPACITY = 25.0
_TOLERANCE = 1e-9
"""How far rounding in the sum of a full knapsack may take it over its capacity."""

_RUNNER = (
    COMMON
    + '''
import operator


def run(program, inputs):
    """Fill one knapsack per instance until no item that is left fits."""
    select, capacity = function(program, "select_next_item"), float(inputs["capacity"])
    chosen = []
    for items, seed in zip(inputs["items"], inputs["seeds"]):
        repeatable(seed)
        chosen.append(fill(select, items, capacity))
    return {"chosen": np.array(chosen)}


def fill(select, items, remaining):
    chosen = np.zeros(len(items), dtype=bool)
    left = np.arange(len(items))
    weights, values = items.T
    while left.size and weights.min() <= remaining:
        answer = np.asarray(select(remaining, weights.copy(), values.copy()))
        if answer.size != 1:
            raise ValueError(f"select_next_item returned an array of shape {answer.shape}; one index is needed")
        index = operator.index(answer.item())
        if not 0 <= index < left.size:
            raise ValueError(f"select_next_item returned {index}; allowed: 0 to {left.size - 1}")
        if weights[index] > remaining + 1e-12:
            raise ValueError(f"select_next_item chose an item of {weights[index]}; {remaining} is left")
        chosen[left[index]] = True
        remaining -= weights[index]
        keep = np.arange(left.size) != index
        left, weights, values = left[keep], weights[keep], values[keep]
    return chosen
'''
)


def _inputs(array: np.ndarray) -> Arrays:
    check_array(array, "items", (None, None, 2))
    if (array < 0).any():
        raise EsoptError(f"items: the smallest number is {array.min()}; weights and values must not be below 0")
    seeds = instance_seeds(*array.shape[:2])
    return {"items": array.astype(np.float64), "capacity": np.array(CAPACITY), "seeds": seeds}


def packed_values(inputs: Arrays, outputs: Arrays) -> np.ndarray:
    """Values of what was packed, `[instances]` float64.

    Args:
        inputs: `items` `[instances, n, 2]` (weight, value) and `capacity` `[]`.
        outputs: `chosen` `[instances, n]` bool.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, or a knapsack over its capacity.

    Example:
        >>> inputs = {"items": np.array([[[1.0, 3.0], [2.0, 5.0]]]), "capacity": np.array(2.0)}
        >>> packed_values(inputs, {"chosen": np.array([[False, True]])})
        array([5.])
    """
    items, capacity = inputs["items"], float(inputs["capacity"])
    chosen = outputs.get("chosen")
    if chosen is None or chosen.shape != items.shape[:2] or chosen.dtype != np.bool_:
        got = "nothing" if chosen is None else f"{chosen.dtype} {chosen.shape}"
        raise InvalidSolutionError(f"chosen: {got}; booleans of shape {items.shape[:2]} are needed")
    weights = (items[..., 0] * chosen).sum(axis=1)
    heavy = np.flatnonzero(weights > capacity + _TOLERANCE)
    if heavy.size:
        raise InvalidSolutionError(f"the knapsack of instance {heavy[0]} weighs {weights[heavy[0]]}, over {capacity}")
    values: np.ndarray = (items[..., 1] * chosen).sum(axis=1)
    return values


CONSTRUCT_KP = Task(
    name="construct_kp",
    signature="def select_next_item(remaining_capacity, weights, values):",
    description=(
        "Choose the item to pack next, so that the total value is large. weights and values are arrays of the items "
        "not yet packed. Return the index, in these arrays, of one whose weight is at most remaining_capacity."
    ),
    direction="max",
    sizes={"train": (100,), "val": (100, 50, 200), "test": (100, 50, 200)},
    draw=kp_items,
    inputs=_inputs,
    runner=_RUNNER,
    objectives=packed_values,
)
