"""Delivery routes found by ant colonies: the program says beforehand how good each leg looks."""

from __future__ import annotations

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.heuristics import as_attraction, check_heuristics
from esopt_jax.search.tasks.instances import check_array, cvrp_customers, instance_seeds
from esopt_jax.search.tasks.runner_parts import COMMON, MATRIX
from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError, Task

CAPACITY = 50
SEED_OFFSET = 10_000_000

_RUNNER = (
    COMMON
    + MATRIX
    + '''

def run(program, inputs):
    """One matrix of attraction per instance."""
    heuristics_v2, heuristics = function(program, "heuristics_v2"), []
    for places, demands, seed in zip(inputs["places"], inputs["demands"], inputs["seeds"]):
        distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
        np.fill_diagonal(distances, 1.0)
        repeatable(seed)
        answer = heuristics_v2(distances.copy(), places.copy(), demands.copy(), int(inputs["capacity"]))
        heuristics.append(matrix(answer, distances.shape))
    return {"heuristics": np.array(heuristics)}
'''
)


def _inputs(array: np.ndarray) -> Arrays:
    check_array(array, "customers", (None, None, 3))
    demands = array[..., 0].astype(np.float64)
    problems = []
    if array.shape[1] < 2:
        problems.append("a depot alone; at least one customer is needed")
    if demands[:, 0].any():
        problems.append(f"the depot, row 0, wants {demands[:, 0].max():g}; its demand must be 0")
    if (demands < 0).any() or demands.max() > CAPACITY or (demands % 1).any():
        problems.append(
            f"demands from {demands.min():g} to {demands.max():g}; allowed: whole numbers from 0 to {CAPACITY}, a full "
            "vehicle"
        )
    if problems:
        raise EsoptError("customers: " + "; ".join(problems))
    return {
        "places": array[..., 1:].astype(np.float64),
        "demands": demands,
        "capacity": np.array(CAPACITY),
        "seeds": instance_seeds(array.shape[0], array.shape[1] - 1, offset=SEED_OFFSET),
    }


def route_lengths(inputs: Arrays, stops: np.ndarray) -> np.ndarray:
    """Lengths of routes that start and end in the depot, `[instances]` float64.

    Args:
        inputs: `places` `[instances, n + 1, 2]`, `demands` `[instances, n + 1]` and `capacity` `[]`.
        stops: `[instances, any]` integers: customers in order, with a 0 for each return to the depot.

    Raises:
        InvalidSolutionError: A customer missed or served twice, or a vehicle over its capacity.

    Example:
        >>> places = np.array([[[0.0, 0.0], [0.0, 1.0], [2.0, 0.0]]])
        >>> inputs = {"places": places, "demands": np.array([[0.0, 9.0, 8.0]]), "capacity": np.array(10)}
        >>> route_lengths(inputs, np.array([[1, 0, 2, 0]]))
        array([6.])
    """
    places, demands, capacity = inputs["places"], inputs["demands"], float(inputs["capacity"])
    customers = np.arange(1, places.shape[1])
    lengths = np.zeros(len(places))
    for instance, row in enumerate(stops):
        if not np.array_equal(np.sort(row[row != 0]), customers):
            raise InvalidSolutionError(f"the routes of instance {instance} do not serve every customer once")
        vehicle = np.cumsum(row == 0)
        load = np.bincount(vehicle, weights=demands[instance, row]).max()
        if load > capacity:
            raise InvalidSolutionError(f"a vehicle of instance {instance} carries {load:g}, over {capacity:g}")
        path = places[instance, np.concatenate([[0], row, [0]])]
        lengths[instance] = np.linalg.norm(np.diff(path, axis=0), axis=-1).sum()
    return lengths


def colony_lengths(
    inputs: Arrays,
    outputs: Arrays,
    *,
    dtype: type[np.floating] = np.float32,
    non_finite: bool = False,
) -> np.ndarray:
    """Lengths of the best routes that ants find by the heuristics, `[instances]` float64.

    Args:
        inputs: As of `route_lengths`, with `seeds` `[instances]`.
        outputs: `heuristics` `[instances, n + 1, n + 1]`.
        dtype: Of the ants' loop.
        non_finite: Whether NaN counts as 0, and infinity as the largest number.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, or an entry that is not finite.
    """
    import jax

    from esopt_jax.search.tasks.cvrp_ants import best_routes

    places = inputs["places"]
    heuristics = check_heuristics(outputs, (*places.shape[:2], places.shape[1]), dtype=dtype, non_finite=non_finite)
    distances = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1).astype(dtype)
    demands, capacity = inputs["demands"].astype(dtype), inputs["capacity"].astype(dtype)
    with jax.enable_x64(dtype == np.float64):
        stops = best_routes(inputs["seeds"].astype(np.uint32), as_attraction(heuristics), distances, demands, capacity)
    return route_lengths(inputs, np.asarray(stops))


ACO_CVRP = Task(
    name="aco_cvrp",
    signature="def heuristics_v2(distance_matrix, coordinates, demands, capacity):",
    description=(
        "Say how promising each leg from one place to another is, so that ants which prefer promising legs find short "
        "delivery routes. Every route starts and ends at the depot, place 0, and serves customers whose demands sum "
        "to capacity at most. distance_matrix is (n, n) with a diagonal of 1, coordinates (n, 2) and demands (n,), "
        "0 for the depot. Return an (n, n) array; a larger number is a better leg."
    ),
    direction="min",
    sizes={"train": (50,), "val": (50, 20, 100), "test": (50, 20, 100)},
    draw=cvrp_customers,
    inputs=_inputs,
    runner=_RUNNER,
    objectives=colony_lengths,
)
