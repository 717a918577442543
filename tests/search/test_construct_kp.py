"""construct_kp: its published training set, a known score, and the refusal of what does not fit."""

import numpy as np
import pytest
from run_here import run_here

from esopt_jax.search.tasks.construct_kp import CONSTRUCT_KP, packed_values
from esopt_jax.search.tasks.task import InvalidSolutionError


def densest_that_fits(remaining, weights, values):
    return np.argmax(np.where(weights <= remaining, values / weights, -np.inf))


def test_the_greedy_by_density_scores_as_published_on_the_training_set():
    inputs = CONSTRUCT_KP.instances("train", 100)
    values = packed_values(inputs, run_here(CONSTRUCT_KP, densest_that_fits, inputs))
    assert values.mean() == pytest.approx(40.14595, abs=5e-6)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (1, "chose an item of 30.0; 25.0 is left"),
        (-1, "allowed: 0 to 1"),
        ([0, 1], "one index is needed"),
        (0.9, "interpreted as an integer"),
    ],
)
def test_an_answer_that_is_no_item_that_fits_is_refused(answer, reason):
    inputs = {"items": np.array([[[1.0, 1.0], [30.0, 9.0]]]), "capacity": np.array(25.0)}
    with pytest.raises((ValueError, TypeError), match=reason):
        run_here(CONSTRUCT_KP, lambda *_: answer, inputs)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [(np.array([[True, True]]), "weighs 31.0"), (np.array([[1, 0]]), "booleans"), (np.array([[True]]), "booleans")],
)
def test_what_is_no_packing_is_refused_with_its_reason(chosen, reason):
    inputs = {"items": np.array([[[1.0, 1.0], [30.0, 9.0]]]), "capacity": np.array(25.0)}
    with pytest.raises(InvalidSolutionError, match=reason):
        packed_values(inputs, {"chosen": chosen})
