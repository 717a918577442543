"""construct_kp: its published training set, a known score, and the refusal of what does not fit."""

import numpy as np
import pytest
from run_here import run_here

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.construct_kp import CONSTRUCT_KP, packed_values
from esopt_jax.search.tasks.task import InvalidSolutionError


def densest_that_fits(remaining, weights, values):
    return np.argmax(np.where(weights <= remaining, values / weights, -np.inf))


def test_the_greedy_by_density_scores_as_published_on_the_training_set():
    inputs = CONSTRUCT_KP.instances("train", 100)
    values = packed_values(inputs, run_here(CONSTRUCT_KP, densest_that_fits, inputs))
    assert values.mean() == pytest.approx(40.14595, abs=5e-6)


def plain_packing(select, items):
    """The loop as one would first write it."""
    left, remaining, value = list(range(len(items))), 25.0, 0.0
    while any(items[item, 0] <= remaining for item in left):
        item = left.pop(select(remaining, items[left, 0], items[left, 1]))
        remaining -= items[item, 0]
        value += items[item, 1]
    return value


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_the_runner_packs_what_the_plain_loop_packs_for_random_heuristics(scale):
    def lottery(remaining, weights, values):
        return int(np.argmax(np.where(weights <= remaining, np.sin(1e4 * values * weights), -np.inf)))

    inputs = CONSTRUCT_KP.inputs(scale * np.random.default_rng(0).random((3, 80, 2)))
    fast = packed_values(inputs, run_here(CONSTRUCT_KP, lottery, inputs))
    plain = [plain_packing(lottery, items) for items in inputs["items"]]
    np.testing.assert_allclose(fast, plain, rtol=0, atol=1e-9)


def test_a_program_that_writes_in_its_arguments_changes_nothing_else():
    def vandal(remaining, weights, values):
        best = densest_that_fits(remaining, weights, values)
        weights[:] = values[:] = 0.0
        return best

    inputs = CONSTRUCT_KP.instances("train", 20)
    honest, other = (packed_values(inputs, run_here(CONSTRUCT_KP, f, inputs)) for f in (densest_that_fits, vandal))
    np.testing.assert_array_equal(honest, other)


def test_an_array_of_no_items_is_refused():
    with pytest.raises(EsoptError, match="the smallest number is -1"):
        CONSTRUCT_KP.inputs(-np.ones((1, 2, 2)))


TWO_ITEMS = CONSTRUCT_KP.inputs(np.array([[[1.0, 1.0], [30.0, 9.0]]]))


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
    with pytest.raises((ValueError, TypeError), match=reason):
        run_here(CONSTRUCT_KP, lambda *_: answer, TWO_ITEMS)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [(np.array([[True, True]]), "weighs 31.0"), (np.array([[1, 0]]), "booleans"), (np.array([[True]]), "booleans")],
)
def test_what_is_no_packing_is_refused_with_its_reason(chosen, reason):
    with pytest.raises(InvalidSolutionError, match=reason):
        packed_values(TWO_ITEMS, {"chosen": chosen})
