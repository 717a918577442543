"""aco_tsp: the colonies walk as a plain loop does, and no heuristic is trusted."""

import random

import jax
import numpy as np
import pytest
from run_here import run_here

from esopt_jax.search.tasks.aco_tsp import ACO_TSP, colony_lengths
from esopt_jax.search.tasks.ants import choose
from esopt_jax.search.tasks.task import InvalidSolutionError
from esopt_jax.search.tasks.tsp_ants import best_tours


def plain_colony(seed, attraction, distances, *, ants, iterations):
    """One colony, one ant and one step at a time."""
    count, pheromone, best, shortest = len(distances), np.ones_like(distances), None, np.inf
    for iteration in range(iterations):
        key = jax.random.fold_in(jax.random.key(seed), iteration)
        draws = np.asarray(jax.random.uniform(key, (count, ants), distances.dtype))
        tours = []
        for ant in range(ants):
            tour = [int(draws[0, ant] * count)]
            while len(tour) < count:
                weights = pheromone[tour[-1]] * attraction[tour[-1]]
                weights[tour] = 0
                running = np.cumsum(weights)
                tour.append(int(np.argmax(running > draws[len(tour), ant] * running[-1])))
            tours.append(tour)
        pheromone *= 0.9
        for tour in tours:
            onward = np.roll(tour, -1)
            length = distances[tour, onward].sum()
            pheromone[tour, onward] += 1 / length
            pheromone[onward, tour] += 1 / length
            if length < shortest:
                best, shortest = tour, length
    return best


@pytest.fixture(scope="module")
def small():
    """Distances and random attraction of 3 instances of 12 cities, float64."""
    rng = np.random.default_rng(0)
    cities = rng.random((3, 12, 2))
    return np.linalg.norm(cities[:, :, None] - cities[:, None], axis=-1), rng.uniform(0.1, 1, (3, 12, 12))


def test_the_colonies_find_the_tours_of_the_plain_loop_for_the_same_draws(small):
    distances, attraction = small
    seeds = np.arange(7, 10)
    with jax.enable_x64(True):
        fast = np.asarray(best_tours(seeds, attraction, distances, ants=5, iterations=12))
        plain = [
            plain_colony(int(seed), attraction[i], distances[i], ants=5, iterations=12) for i, seed in enumerate(seeds)
        ]
    np.testing.assert_array_equal(fast, plain)


def test_an_index_is_drawn_in_proportion_to_its_weight():
    uniform = np.float32((np.arange(1000) + 0.5) / 1000)
    weights, allowed = np.float32([1.0, 5.0, 0.5, 2.5]), np.array([True, False, True, True])
    drawn = jax.vmap(choose, (0, None, None))(uniform, weights, allowed)
    np.testing.assert_array_equal(np.bincount(drawn), [250, 0, 125, 625])


def test_no_rounding_draws_what_is_not_allowed():
    allowed = np.array([False, True, True, False])
    for scale in (np.nan, np.inf, 0.0, 1e-45, 3e38):
        for uniform in (0.0, 1 - 2**-23):
            assert choose(np.float32(uniform), np.full(4, scale, np.float32), allowed) in (1, 2)


def test_a_program_that_prefers_short_steps_beats_one_that_does_not_care_and_scores_the_same_twice():
    inputs = ACO_TSP.instances("train", 20)
    near, again = (ACO_TSP.objectives(inputs, run_here(ACO_TSP, lambda d: 1 / d**2, inputs)) for _ in range(2))
    blind = ACO_TSP.objectives(inputs, run_here(ACO_TSP, np.ones_like, inputs))
    np.testing.assert_array_equal(near, again)
    assert (near < blind).all()


def test_the_training_set_is_the_start_of_that_of_construct_tsp_and_its_good_scores_are_as_published():
    inputs = ACO_TSP.instances("train")
    assert inputs["cities"].shape == (5, 50, 2)
    assert inputs["seeds"].tolist() == [51234, 51235, 51236, 51237, 51238]
    lengths = ACO_TSP.objectives(inputs, run_here(ACO_TSP, lambda d: 1 / d**3, inputs))
    assert 5.7 < lengths.mean() < 6.0  # published programs: 5.80 to 6.16


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h: h[:, :2], r"float64 \(2, 2, 3\); numbers of shape \(2, 3, 3\) are needed"),
        (lambda h: h.astype(complex), "complex128"),
        (lambda h: np.where(h == h[1, 0, 0], np.nan, h), "instance 1 are not all finite in float32"),
        (lambda h: np.where(h == h[1, 0, 0], 1e39, h), "instance 1 are not all finite in float32"),
    ],
)
def test_heuristics_of_no_use_are_refused_with_their_reason(change, reason):
    inputs = {"cities": np.random.default_rng(0).random((2, 3, 2)), "seeds": np.arange(2)}
    heuristics = np.random.default_rng(1).random((2, 3, 3))
    with pytest.raises(InvalidSolutionError, match=reason):
        colony_lengths(inputs, {"heuristics": change(heuristics)})
    with pytest.raises(InvalidSolutionError, match="nothing"):
        colony_lengths(inputs, {})


@pytest.mark.parametrize(("answer", "reason"), [(np.ones((2, 2)), r"\(2, 2\)"), (None, "object"), ([["a"]], "<U1")])
def test_an_answer_that_is_no_matrix_of_numbers_is_refused_by_the_runner(answer, reason):
    with pytest.raises(ValueError, match=reason):
        run_here(ACO_TSP, lambda distances: answer, ACO_TSP.instances("train", 20))


def test_what_a_program_draws_is_the_same_in_every_run_and_differs_between_instances():
    def random_matrix(distances):
        return np.random.rand(*distances.shape) + np.random.default_rng().random() + random.random()  # noqa: NPY002

    inputs = ACO_TSP.instances("train", 20)
    first = run_here(ACO_TSP, random_matrix, inputs)["heuristics"]
    random.random(), np.random.rand()  # noqa: NPY002 - the test's own draws go on
    again = run_here(ACO_TSP, random_matrix, inputs)["heuristics"]
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first[0], first[1]).any()
