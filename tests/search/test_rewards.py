"""Rewards of a population against closed forms, and the fault of the published rule that ours must not have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esopt_jax.core.shaping import shape_fitness
from esopt_jax.search.rewards import batch_rewards, improvement_rewards, ranked_rewards, sample_rewards, valid_zscores

NAN = float("nan")
LOSSES = st.lists(st.one_of(st.just(NAN), st.floats(-100, 100)), min_size=1, max_size=12)


def batch(rule, losses, *, parents=None, population=(1.0,), groups=None):
    shown = [[p] for p in parents] if parents is not None else [[]] * len(losses)
    return batch_rewards(rule, losses, shown=shown, population=population, groups=groups or [0] * len(losses))


def test_improvement_as_published():
    parent, worst = 4.0, 6.5
    children = {3.0: 1.0, 4.0: 0.0, 6.5: -2.5, 6.6: -1.0, NAN: -1.0, float("inf"): -1.0}
    found = improvement_rewards(list(children), [parent] * len(children), worst)
    assert found.tolist() == pytest.approx(list(children.values()))
    near = improvement_rewards([NAN], [6.2], worst)
    assert near.tolist() == pytest.approx([-0.3])  # max(P - W, -1)


def test_the_published_rule_lets_broken_code_outrank_working_code_and_ours_does_not():
    losses, parents = [6.4, NAN], [4.0, 4.0]
    published = batch("published", losses, parents=parents, population=[1.0, 6.5])
    assert published[1] > published[0]
    ours = batch("ranked", losses, parents=parents, population=[1.0, 6.5])
    assert ours[0] > ours[1]


def test_sampling_as_published():
    losses = [2.0, NAN, 4.0, 9.0]
    spread = np.std([-2.0, -4.0, -9.0])
    assert sample_rewards(losses).tolist() == pytest.approx([-2.0, -9.0 - spread, -4.0, -9.0])
    assert sample_rewards([5.0, NAN, 5.0]).tolist() == [-5.0, -6.0, -5.0]
    assert sample_rewards([-2754.0, NAN]).tolist() == pytest.approx([2754.0, 2754.0 - 27.54])
    assert sample_rewards([NAN, NAN]).tolist() == [0.0, 0.0]


def test_the_ablation_scores_working_programs_only():
    found = batch("published_zero", [1.0, NAN, 3.0])
    assert found.tolist() == [1.0, 0.0, -1.0]
    assert valid_zscores([1.0, 1.0], [True, True]).tolist() == [0.0, 0.0]
    assert valid_zscores([1.0], [False]).tolist() == [0.0]


@given(LOSSES, st.data())
def test_ours_is_centred_on_each_parent_and_ordered_by_loss(losses, data):
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(losses), max_size=len(losses)))
    found = ranked_rewards(losses, groups)
    assert np.abs(found).max() <= 0.5
    for group in set(groups):
        mine = [i for i, g in enumerate(groups) if g == group]
        assert sum(found[i] for i in mine) == pytest.approx(0, abs=1e-12)
        for i in mine:
            for j in mine:
                if np.isnan(losses[i]) and np.isnan(losses[j]):
                    assert found[i] == found[j]
                elif np.isnan(losses[j]) or losses[i] < losses[j]:
                    assert found[i] > found[j]


def test_ours_does_not_see_which_parent_is_the_better_one():
    easy, hard = [1.0, 2.0, 3.0], [101.0, 102.0, 103.0]
    found = batch("ranked", easy + hard, parents=[2.0] * 3 + [102.0] * 3, groups=[0] * 3 + [1] * 3)
    assert found[:3].tolist() == found[3:].tolist() == [0.5, 0.0, -0.5]


@pytest.mark.parametrize("rule", ["ranked", "published", "published_zero"])
@pytest.mark.parametrize("losses", [[2.0] * 4, [NAN] * 4])
def test_without_a_difference_there_is_no_update(rule, losses):
    rewards = batch(rule, losses, parents=[2.0] * 4, population=[2.0])
    assert shape_fitness(rewards, method="zscore").degenerate


def test_one_absurd_objective_does_not_decide():
    tame = batch("ranked", [1.0, 2.0, 3.0, 4.0])
    wild = batch("ranked", [1.0, 2.0, 3.0, 1e30])
    assert tame.tolist() == wild.tolist()
