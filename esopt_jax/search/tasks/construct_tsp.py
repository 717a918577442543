"""A tour built city by city: the program chooses the next one."""

from __future__ import annotations

import numpy as np

from esopt_jax.search.tasks.instances import tsp_cities
from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError, Split, Task

_RUNNER = '''
import operator

import numpy as np


def run(program, inputs):
    """Build one tour per instance, from city 0; the last city is forced."""
    return {"tours": np.stack([tour(program.select_next_node, cities) for cities in inputs["cities"]])}


def tour(select, cities):
    distances = np.linalg.norm(cities[:, None] - cities[None], axis=-1)
    order = np.argsort(distances, axis=1, kind="stable")
    count = len(cities)
    unvisited = np.ones(count, dtype=bool)
    unvisited[0] = False
    path = [0]
    while len(path) < count - 1:
        near = order[path[-1]]
        near = near[unvisited[near]][:50]
        city = operator.index(select(path[-1], 0, near, distances.copy()))
        if not 0 <= city < count or not unvisited[city]:
            raise ValueError(f"select_next_node returned {city}, which is not an unvisited city")
        unvisited[city] = False
        path.append(city)
    return np.array([*path, *np.flatnonzero(unvisited)])
'''


def _instances(split: Split, size: int) -> Arrays:
    return {"cities": tsp_cities(split, size)}


def tour_lengths(inputs: Arrays, outputs: Arrays) -> np.ndarray:
    """Lengths of the closed tours, `[instances]` float64.

    Args:
        inputs: `cities` `[instances, n, 2]`.
        outputs: `tours` `[instances, n]` integers, each row an order of all cities.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, or a row that misses or repeats a city.

    Example:
        >>> square = np.array([[[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]])
        >>> tour_lengths({"cities": square}, {"tours": np.array([[0, 1, 2, 3]])})
        array([4.])
    """
    cities = inputs["cities"]
    tours = outputs.get("tours")
    if tours is None or tours.shape != cities.shape[:2] or tours.dtype.kind not in "iu":
        got = "nothing" if tours is None else f"{tours.dtype} {tours.shape}"
        raise InvalidSolutionError(f"tours: {got}; integers of shape {cities.shape[:2]} are needed")
    wrong = np.flatnonzero((np.sort(tours, axis=1) != np.arange(cities.shape[1])).any(axis=1))
    if wrong.size:
        raise InvalidSolutionError(f"the tour of instance {wrong[0]} does not visit every city once")
    path = np.take_along_axis(cities, tours[..., None].astype(np.int64), axis=1)
    return np.linalg.norm(path - np.roll(path, -1, axis=1), axis=-1).sum(axis=1)


CONSTRUCT_TSP = Task(
    name="construct_tsp",
    signature="def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):",
    description=(
        "Choose the city to go to next, so that the closed tour through all cities is short. unvisited_nodes holds "
        "the nearest cities not yet visited, nearest first; distance_matrix is an (n, n) array. Return one of them."
    ),
    direction="min",
    instances=_instances,
    runner=_RUNNER,
    objectives=tour_lengths,
)
