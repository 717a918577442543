"""aco_cvrp: the colonies deliver as a plain loop does, and routes are checked before they count."""

import jax
import numpy as np
import pytest
from run_here import run_here

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.aco_cvrp import ACO_CVRP, colony_lengths, route_lengths
from esopt_jax.search.tasks.cvrp_ants import best_routes
from esopt_jax.search.tasks.task import InvalidSolutionError


def plain_colony(seed, attraction, distances, demands, capacity, *, ants, iterations):
    """One colony, one ant and one step at a time."""
    count, pheromone, best, shortest = len(distances), np.ones_like(distances), None, np.inf
    for iteration in range(iterations):
        key = jax.random.fold_in(jax.random.key(seed), iteration)
        draws = np.asarray(jax.random.uniform(key, (2 * count - 2, ants), distances.dtype))
        paths = []
        for ant in range(ants):
            path, room = [0], capacity
            while len(set(path)) < count:
                weights = pheromone[path[-1]] * attraction[path[-1]]
                weights[path] = 0
                weights[demands > room] = 0
                if path[-1] != 0:
                    weights[0] = pheromone[path[-1], 0] * attraction[path[-1], 0]
                running = np.cumsum(weights)
                there = int(np.argmax(running > draws[len(path) - 1, ant] * running[-1]))
                room = capacity if there == 0 else room - demands[there]
                path.append(there)
            paths.append([*path, 0])
        pheromone *= 0.9
        for path in paths:
            length = distances[path[:-1], path[1:]].sum()
            pheromone[path[:-1], path[1:]] += 1 / length
            if length < shortest:
                best, shortest = path, length
        pheromone = np.maximum(pheromone, 1e-10)
    return best


def test_the_colonies_find_the_routes_of_the_plain_loop_for_the_same_draws():
    rng = np.random.default_rng(0)
    places, attraction = rng.random((3, 11, 2)), rng.uniform(0.1, 1, (3, 11, 11))
    demands = rng.integers(1, 10, (3, 11)).astype(float)
    demands[:, 0] = 0
    distances = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
    seeds = np.arange(7, 10)
    with jax.enable_x64(True):
        capacity = np.array(20.0)
        fast = np.asarray(best_routes(seeds, attraction, distances, demands, capacity, ants=5, iterations=12))
        for i, seed in enumerate(seeds):
            plain = plain_colony(int(seed), attraction[i], distances[i], demands[i], 20.0, ants=5, iterations=12)
            np.testing.assert_array_equal(fast[i], np.pad(plain[1:], (0, 21 - len(plain))))


def test_good_scores_on_the_training_set_are_as_published_in_both_precisions():
    inputs = ACO_CVRP.instances("train")
    assert inputs["places"].shape == (10, 51, 2)
    outputs = run_here(ACO_CVRP, lambda distances, *_: 1 / distances**3, inputs)
    single, again = (colony_lengths(inputs, outputs) for _ in range(2))
    np.testing.assert_array_equal(single, again)
    assert 8.7 < single.mean() < 9.7  # published programs: 8.77 to 10.45
    assert colony_lengths(inputs, outputs, dtype=np.float64).mean() == pytest.approx(single.mean(), abs=0.3)


def test_a_vehicle_that_holds_one_customer_goes_back_after_each():
    inputs = ACO_CVRP.inputs(np.array([[[0, 0.5, 0.5], [50, 0.5, 0.6], [50, 0.5, 0.3]]]))
    outputs = run_here(ACO_CVRP, lambda distances, *_: np.zeros_like(distances), inputs)
    np.testing.assert_allclose(ACO_CVRP.objectives(inputs, outputs), 0.6)


INPUTS = ACO_CVRP.inputs(np.array([[[0, 0.5, 0.5], [30, 0.5, 0.6], [30, 0.5, 0.3]]]))


@pytest.mark.parametrize(
    ("stops", "reason"),
    [
        ([1, 2, 0, 0], "carries 60, over 50"),
        ([1, 0, 1, 2], "serve every customer once"),
        ([1, 0, 0, 0], "serve every customer once"),
        ([1, 0, 3, 2], "serve every customer once"),
    ],
)
def test_what_are_no_routes_is_refused_with_its_reason(stops, reason):
    with pytest.raises(InvalidSolutionError, match=reason):
        route_lengths(INPUTS, np.array([stops]))


def test_what_is_not_finite_is_refused_or_replaced():
    outputs = {"heuristics": np.array([[[1, np.nan, np.inf]] * 3])}
    with pytest.raises(InvalidSolutionError, match="instance 0 are not all finite"):
        colony_lengths(INPUTS, outputs)
    np.testing.assert_allclose(colony_lengths(INPUTS, outputs, non_finite=True), 0.6)


def test_an_array_of_no_customers_is_refused_with_all_its_problems():
    with pytest.raises(EsoptError, match=r"the depot, row 0, wants 1.*demands from 1 to 51; allowed: whole .* to 50"):
        ACO_CVRP.inputs(np.array([[[1, 0.5, 0.5], [51, 0.5, 0.6]]]))
    with pytest.raises(EsoptError, match="at least one customer"):
        ACO_CVRP.inputs(np.zeros((1, 1, 3)))
