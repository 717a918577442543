"""Tours found by ant colonies: the program says beforehand how good each edge looks."""

from __future__ import annotations

import numpy as np

from esopt_jax.search.tasks.construct_tsp import cities_of, tour_lengths
from esopt_jax.search.tasks.heuristics import as_attraction, check_heuristics
from esopt_jax.search.tasks.instances import tsp_cities
from esopt_jax.search.tasks.runner_parts import COMMON, MATRIX
from esopt_jax.search.tasks.task import Arrays, Split, Task

_RUNNER = (
    COMMON
    + MATRIX
    + '''

def run(program, inputs):
    """One matrix of attraction per instance."""
    heuristics_v2, heuristics = function(program, "heuristics_v2"), []
    for cities, seed in zip(inputs["cities"], inputs["seeds"]):
        distances = np.linalg.norm(cities[:, None] - cities[None], axis=-1)
        np.fill_diagonal(distances, 1.0)
        repeatable(seed)
        heuristics.append(matrix(heuristics_v2(distances.copy()), distances.shape))
    return {"heuristics": np.array(heuristics)}
'''
)


def _draw(split: Split, size: int) -> np.ndarray:
    return tsp_cities(split, size)[: 5 if split == "train" else 64]


def colony_lengths(inputs: Arrays, outputs: Arrays) -> np.ndarray:
    """Lengths of the best tours that ants find by the heuristics, `[instances]` float64.

    Args:
        inputs: `cities` `[instances, n, 2]` and `seeds` `[instances]`.
        outputs: `heuristics` `[instances, n, n]`.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, or an entry that is not finite in float32.
    """
    from esopt_jax.search.tasks.tsp_ants import best_tours

    cities = inputs["cities"]
    attraction = as_attraction(check_heuristics(outputs, (*cities.shape[:2], cities.shape[1])))
    distances = np.linalg.norm(cities[:, :, None] - cities[:, None], axis=-1).astype(np.float32)
    tours = best_tours(inputs["seeds"].astype(np.uint32), attraction, distances)
    return tour_lengths(inputs, {"tours": np.asarray(tours)})


ACO_TSP = Task(
    name="aco_tsp",
    signature="def heuristics_v2(distance_matrix):",
    description=(
        "Say how promising each step from one city to another is, so that ants which prefer promising steps find a "
        "short closed tour through all cities. distance_matrix is an (n, n) array whose diagonal is 1. Return an "
        "array of the same shape; a larger number is a better step."
    ),
    direction="min",
    sizes={"train": (50,), "val": (50, 20, 100), "test": (50, 20, 100)},
    draw=_draw,
    inputs=cities_of,
    runner=_RUNNER,
    objectives=colony_lengths,
)
