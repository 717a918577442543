"""A tour built city by city: the program chooses the next one."""

from __future__ import annotations

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.instances import check_array, instance_seeds, tsp_cities
from esopt_jax.search.tasks.runner_parts import COMMON
from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError, Task

_RUNNER = (
    COMMON
    + '''
import operator


def run(program, inputs):
    """Build one tour per instance, from city 0; the last city is forced."""
    select = function(program, "select_next_node")
    tours = []
    for cities, seed in zip(inputs["cities"], inputs["seeds"]):
        repeatable(seed)
        tours.append(tour(select, cities))
    return {"tours": np.array(tours)}


def tour(select, cities):
    distances = np.linalg.norm(cities[:, None] - cities[None], axis=-1)
    order = np.argsort(distances, axis=1, kind="stable")
    count = len(cities)
    free = np.ones(count, dtype=bool)
    free[0] = False
    path = [0]
    for _ in range(count - 2):
        near = order[path[-1]]
        near = near[free[near]]
        city = operator.index(select(path[-1], 0, near[:50], distances))
        if not 0 <= city < count or not free[city]:
            raise ValueError(f"select_next_node returned {city}, which is not an unvisited city")
        free[city] = False
        path.append(city)
    return [*path, *np.flatnonzero(free)]
'''
)


def cities_of(array: np.ndarray) -> Arrays:
    """The inputs of a runner for an array `[instances, n, 2]` of cities.

    Raises:
        EsoptError: It holds no such instances.
    """
    check_array(array, "cities", (None, None, 2))
    if array.shape[1] < 3:
        raise EsoptError(f"cities: {array.shape[1]} in an instance; a tour needs at least 3")
    return {"cities": array.astype(np.float64), "seeds": instance_seeds(*array.shape[:2])}


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
    lengths: np.ndarray = np.linalg.norm(path - np.roll(path, -1, axis=1), axis=-1).sum(axis=1)
    return lengths


CONSTRUCT_TSP = Task(
    name="construct_tsp",
    signature="def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):",
    description=(
        "Choose the city to go to after current_node, so that the closed tour through all cities, which began in "
        "destination_node and ends there, is short. unvisited_nodes is an array of the (at most 50) nearest cities not "
        "yet visited, nearest first; distance_matrix is an (n, n) array. Return one of unvisited_nodes."
    ),
    direction="min",
    sizes={"train": (50,), "val": (50, 20, 100, 200), "test": (50, 20, 100, 200)},
    draw=tsp_cities,
    inputs=cities_of,
    runner=_RUNNER,
    objectives=tour_lengths,
)
