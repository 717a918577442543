"""Who is shown and who is kept: the distributions, and what they must never depend on."""

import dataclasses
from collections import Counter

import pytest

from esopt_jax.search.program import Program, from_row, to_row
from esopt_jax.search.selection import choose_parents, parent_weights, survivors

DRAWS = 20_000


def program(call, objective, **changes):
    made = Program(
        call, 0, call, 0, "i1", (), 0, "", f"code {call}", objective, "" if objective is not None else "no", f"{call}"
    )
    return dataclasses.replace(made, **changes)


def population(*objectives):
    return tuple(program(call, objective) for call, objective in enumerate(objectives))


def shares(members, *, count, distinct=False, direction="min"):
    """How often each pair (or single) of calls is drawn, in DRAWS draws."""
    drawn = Counter(
        tuple(p.call for p in choose_parents(3, 7, slot, members, count=count, direction=direction, distinct=distinct))
        for slot in range(DRAWS)
    )
    return {calls: times / DRAWS for calls, times in drawn.items()}


def test_parents_are_drawn_by_rank():
    members = population(1.0, 2.0, 5.0, 5.5)
    weights = [1 / (rank + 1 + 4) for rank in range(4)]
    found = shares(members, count=1)
    for rank, weight in enumerate(weights):
        wanted = weight / sum(weights)
        assert found[rank,] == pytest.approx(wanted, abs=4 * (wanted * (1 - wanted) / DRAWS) ** 0.5)


def test_two_parents_are_independent_unless_they_must_differ():
    members = population(1.0, 2.0, 5.0)
    single = [weight / sum(parent_weights([1.0, 2.0, 5.0])) for weight in parent_weights([1.0, 2.0, 5.0])]
    found = shares(members, count=2)
    for one in range(3):
        for other in range(3):
            assert found[one, other] == pytest.approx(single[one] * single[other], abs=0.015)
    apart = shares(members, count=2, distinct=True)
    assert all(one != other for one, other in apart)
    for one, other in apart:
        assert apart[one, other] == pytest.approx(single[one] * single[other] / (1 - single[one]), abs=0.015)


def test_equal_programs_are_drawn_alike():
    found = shares(population(2.0, 2.0, 2.0, 2.0, 2.0), count=1)
    for share in found.values():
        assert share == pytest.approx(0.2, abs=4 * (0.2 * 0.8 / DRAWS) ** 0.5)


def test_larger_is_better_where_it_is():
    found = shares(population(9.0, 1.0), count=1, direction="max")
    assert found[0,] > found[1,]


def test_fewer_parents_where_there_are_fewer():
    assert [p.call for p in choose_parents(0, 0, 0, population(1.0), count=2, direction="min", distinct=True)] == [0]
    assert choose_parents(0, 0, 0, (), count=2, direction="min", distinct=True) == ()
    assert len(choose_parents(0, 0, 0, population(1.0), count=2, direction="min", distinct=False)) == 2


def kept(old, new, *, size=3, direction="min", duplicates="syntax", seed=0, batch=0):
    found = survivors(seed, batch, old, new, size=size, direction=direction, duplicates=duplicates)
    return [p.call for p in found]


def test_the_best_are_kept_best_first():
    programs = population(5.0, None, 1.0, 3.0, 2.0, 8.0)
    assert kept(programs[:2], programs[2:]) == [2, 4, 3]
    assert kept(programs[:2], programs[2:], direction="max") == [5, 0, 3]


def test_the_best_objective_never_gets_worse():
    state, best = (), float("inf")
    for batch in range(50):
        new = [program(batch * 5 + i, float((batch * 7919 + i * 104729) % 1000)) for i in range(5)]
        state = survivors(1, batch, state, new, size=4, direction="min", duplicates="syntax")
        best = min(best, *(p.objective for p in new))
        assert state[0].objective == best
        assert [p.objective for p in state] == sorted(p.objective for p in state)


def test_what_makes_a_duplicate():
    one, twin = program(0, 1.0, key="a"), program(1, 1.0, key="a")
    alike = program(2, 1.0, key="b")
    assert set(kept([one], [twin, alike])) == {0, 2}
    assert kept([one], [twin, alike], duplicates="objective") == [0]
    assert set(kept([one], [program(3, 1.000004), program(4, 1.00001)], duplicates="objective")) == {0, 4}


def test_of_equal_programs_neither_old_nor_new_ones_are_kept():
    programs = population(*[1.0] * 10)
    times = Counter(call for seed in range(4000) for call in kept(programs[:5], programs[5:], size=5, seed=seed))
    for call in range(10):
        assert times[call] / 4000 == pytest.approx(0.5, abs=4 * (0.25 / 4000) ** 0.5)


def test_a_row_gives_the_program_back():
    for made in (program(3, None, parents=(1, 2), twin=1, member=4, idea="é", seconds=2.0), program(0, -1.5)):
        assert from_row(to_row(made)) == made


@pytest.mark.parametrize(
    "change",
    [{"call": "0"}, {"operator": "x1"}, {"parents": [None]}, {"extra": 1}, {"valid": False}, {"objective": "1"}],
)
def test_a_damaged_row_is_refused(change):
    from esopt_jax.errors import EsoptError

    with pytest.raises(EsoptError, match=next(iter(change))):
        from_row({**to_row(program(0, 1.0)), **change})
