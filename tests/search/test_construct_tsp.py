"""construct_tsp: its published training set, a known score, and the refusal of what is no tour."""

import numpy as np
import pytest
from run_here import run_here

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.construct_tsp import CONSTRUCT_TSP, tour_lengths
from esopt_jax.search.tasks.task import InvalidSolutionError


def test_nearest_neighbour_scores_as_published_on_the_training_set():
    inputs = CONSTRUCT_TSP.instances("train", 50)
    outputs = run_here(CONSTRUCT_TSP, lambda current, goal, near, distances: near[0], inputs)
    assert tour_lengths(inputs, outputs).mean() == pytest.approx(7.00437, abs=5e-6)


def test_a_program_that_goes_back_is_refused_where_it_does():
    inputs = CONSTRUCT_TSP.instances("val", 20)
    with pytest.raises(ValueError, match="returned 0, which is not an unvisited city"):
        run_here(CONSTRUCT_TSP, lambda *_: 0, inputs)


def test_a_city_that_is_no_whole_number_is_refused_not_cut():
    with pytest.raises(TypeError, match="interpreted as an integer"):
        run_here(CONSTRUCT_TSP, lambda *_: 1.5, CONSTRUCT_TSP.instances("val", 20))


def plain_tour(select, cities):
    """The loop as one would first write it."""
    distances = np.array([[np.hypot(*(a - b)) for b in cities] for a in cities])
    path = [0]
    while len(path) < len(cities) - 1:
        near = sorted(set(range(len(cities))) - set(path), key=lambda city: distances[path[-1], city])
        path.append(select(path[-1], 0, np.array(near[:50]), distances))
    return [*path, *(set(range(len(cities))) - set(path))]


@pytest.mark.parametrize("size", [3, 20, 70])
def test_the_runner_builds_the_tours_of_the_plain_loop_for_random_heuristics(size):
    def lottery(here, goal, near, distances):
        scores = np.sin(1e4 * distances[here, near]) + distances[goal, near]
        return near[np.argmax(scores)]

    inputs = CONSTRUCT_TSP.inputs(np.random.default_rng(0).random((3, size, 2)))
    fast = run_here(CONSTRUCT_TSP, lottery, inputs)
    plain = {"tours": np.array([plain_tour(lottery, cities) for cities in inputs["cities"]])}
    np.testing.assert_allclose(tour_lengths(inputs, fast), tour_lengths(inputs, plain), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((4, 2)), r"shape \(4, 2\); finite numbers of shape \(any, any, 2\)"),
        (np.full((1, 5, 2), np.nan), "finite numbers"),
        (np.zeros((1, 2, 2)), "at least 3"),
        (np.zeros((0, 5, 2)), "finite numbers"),
    ],
)
def test_an_array_of_no_cities_is_refused(array, reason):
    with pytest.raises(EsoptError, match=reason):
        CONSTRUCT_TSP.inputs(array)


@pytest.mark.parametrize(
    ("tours", "reason"),
    [
        (np.array([[0, 1, 1]]), "does not visit every city once"),
        (np.array([[0, 1]]), "integers of shape"),
        (np.array([[0.0, np.nan, 2.0]]), "integers of shape"),
    ],
)
def test_what_is_no_tour_is_refused_with_its_reason(tours, reason):
    with pytest.raises(InvalidSolutionError, match=reason):
        tour_lengths({"cities": np.zeros((1, 3, 2))}, {"tours": tours})


def test_splits_and_sizes_have_draws_of_their_own_which_never_change():
    val, test = (CONSTRUCT_TSP.instances(split, 20)["cities"] for split in ("val", "test"))
    assert not np.isin(val, test).any()
    np.testing.assert_array_equal(val, CONSTRUCT_TSP.instances("val", 20)["cities"])
