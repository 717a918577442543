"""aco_bpp: packings as a plain loop makes them, a bound that none may beat, and the refusal of overfull bins."""

import jax
import numpy as np
import pytest
from run_here import run_here

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.aco_bpp import ACO_BPP, bins_used
from esopt_jax.search.tasks.bpp_packings import fewest_bins
from esopt_jax.search.tasks.task import InvalidSolutionError


def plain_packing(draws, attraction, demands, capacity):
    """Fill one bin after the other; bins as lists of items."""
    left, bins = list(range(len(demands))), []
    while left:
        bins.append([left.pop(int(np.argmax(draws[left])))])
        while fitting := [item for item in left if demands[item] + demands[bins[-1]].sum() <= capacity]:
            means = attraction[np.ix_(bins[-1], fitting)].mean(axis=0)
            bins[-1].append(fitting[int(np.argmax(means))])
            left.remove(bins[-1][-1])
    return bins


def test_the_packings_are_those_of_the_plain_loop_for_the_same_draws():
    rng = np.random.default_rng(0)
    demands, attraction = rng.integers(10, 60, (3, 40)).astype(np.int32), rng.uniform(0.1, 1, (3, 40, 40))
    seeds = np.arange(7, 10)
    with jax.enable_x64(True):
        fast = np.asarray(fewest_bins(seeds, attraction, demands, np.int32(100), packings=6))
        for i, seed in enumerate(seeds):
            key = jax.random.fold_in(jax.random.key(int(seed)), 0)
            draws = np.asarray(jax.random.uniform(key, (6, 40), attraction.dtype))
            packings = [plain_packing(row, attraction[i], demands[i], 100) for row in draws]
            plain = min(packings, key=len)
            of_item = {item: number for number, items in enumerate(plain) for item in items}
            assert fast[i].tolist() == [of_item[item] for item in range(40)]


def test_every_item_starts_the_first_bin_equally_often():
    demands = np.full((1, 4), 100, np.int32)
    seeds = np.arange(2000)
    shape = (len(seeds), 4)
    bins = fewest_bins(
        seeds, np.ones((*shape, 4), np.float32), np.broadcast_to(demands, shape), np.int32(150), packings=1
    )
    for number in range(4):
        counts = (np.asarray(bins) == number).sum(axis=0)
        assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_no_score_is_below_the_bound_and_a_program_that_takes_large_items_first_is_near_it():
    inputs = ACO_BPP.instances("train")
    bound = np.ceil(inputs["demands"].sum(axis=1) / 150)
    assert bound.mean() == pytest.approx(199.6)
    large, again, blind = (
        ACO_BPP.objectives(inputs, run_here(ACO_BPP, function, inputs))
        for function in [lambda demand, capacity: np.tile(demand, (len(demand), 1))] * 2
        + [lambda demand, capacity: np.ones((len(demand), len(demand)))]
    )
    np.testing.assert_array_equal(large, again)
    assert (bound <= large).all()
    assert large.mean() < 204 < blind.mean()  # published programs: 202.0 to 202.6


def test_the_scale_of_the_heuristics_does_not_matter():
    inputs = ACO_BPP.instances("val", 120)
    small, large = (
        run_here(ACO_BPP, lambda demand, capacity, scale=scale: scale * np.outer(demand, demand), inputs)
        for scale in (1.0, 64.0)
    )
    np.testing.assert_array_equal(ACO_BPP.objectives(inputs, small), ACO_BPP.objectives(inputs, large))


INPUTS = ACO_BPP.inputs(np.array([[70, 90, 80], [50, 50, 51]]))


@pytest.mark.parametrize(
    ("bins", "reason"), [([[0, 1, 1], [0, 0, 1]], "instance 0 holds 170"), ([[0, 1, 2], [0] * 3], "151")]
)
def test_an_overfull_bin_is_refused(bins, reason):
    with pytest.raises(InvalidSolutionError, match=reason):
        bins_used(INPUTS, np.array(bins))


@pytest.mark.parametrize(
    ("heuristics", "reason"),
    [
        (np.zeros((2, 3, 3)), "instance 0 have no entry above 0"),
        (np.full((2, 3, 3), np.inf), "not all finite"),
        (np.ones((2, 3)), r"shape \(2, 3, 3\) are needed"),
    ],
)
def test_heuristics_of_no_use_are_refused_with_their_reason(heuristics, reason):
    with pytest.raises(InvalidSolutionError, match=reason):
        ACO_BPP.objectives(INPUTS, {"heuristics": heuristics})


@pytest.mark.parametrize("array", [[[0, 20]], [[151, 20]], [[20.5, 20]]])
def test_items_that_no_bin_takes_are_refused(array):
    with pytest.raises(EsoptError, match="whole numbers from 1 to 150"):
        ACO_BPP.inputs(np.array(array))
