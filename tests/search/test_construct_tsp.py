"""construct_tsp: its published training set, a known score, and the refusal of what is no tour."""

import numpy as np
import pytest
from run_here import run_here

from esopt_jax.search.tasks.construct_tsp import CONSTRUCT_TSP, tour_lengths
from esopt_jax.search.tasks.task import InvalidSolutionError


def test_nearest_neighbour_scores_as_published_on_the_training_set():
    inputs = CONSTRUCT_TSP.instances("train", 50)
    outputs = run_here(CONSTRUCT_TSP, lambda current, goal, near, distances: near[0], inputs)
    assert tour_lengths(inputs, outputs).mean() == pytest.approx(7.00437, abs=5e-6)


def test_a_program_that_goes_back_is_refused_where_it_does():
    inputs = {"cities": CONSTRUCT_TSP.instances("val", 20)["cities"][:1]}
    with pytest.raises(ValueError, match="returned 0, which is not an unvisited city"):
        run_here(CONSTRUCT_TSP, lambda *_: 0, inputs)


def test_a_city_that_is_no_whole_number_is_refused_not_cut():
    with pytest.raises(TypeError, match="interpreted as an integer"):
        run_here(CONSTRUCT_TSP, lambda *_: 1.5, CONSTRUCT_TSP.instances("val", 20))


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
