"""What a search asks for: the budget to the call, the published schedule, and the order of operators."""

from collections import Counter

import pytest
from toy_search import toy_config

from esopt_jax.errors import EsoptError
from esopt_jax.search.program import Program
from esopt_jax.search.state import SearchState, absorb, next_round, replay


def last_state(search, programs, **kwargs):
    *_, last = replay(search, programs, **kwargs)
    return last


def answer(asked, index, *, objective=1.0, code="code"):
    slot = asked.slots[index]
    call = asked.first_call + index
    parents = tuple(p.call for p in slot.parents)
    key = f"{call}" if code else ""
    head = (call, asked.batch, slot.number, asked.attempt, asked.operator, parents, slot.seed)
    return Program(*head, "", code, objective, "" if objective is not None else "bad", key)


def run(search, respond=lambda asked, index: answer(asked, index)):
    """All rounds of a search whose answers `respond` makes, and its last state."""
    state, rounds, programs = SearchState(), [], []
    while (asked := next_round(search, state, direction="min")) is not None:
        new = [respond(asked, index) for index in range(len(asked.slots))]
        state = absorb(search, state, asked, new, direction="min")
        rounds.append(asked)
        programs += new
    return rounds, state, programs


@pytest.mark.parametrize(("budget", "mutations"), [(1000, 1), (2000, 3)])
def test_the_published_schedule(budget, mutations):
    search = toy_config(budget=budget, mutations=mutations, accounting="published", initial_batches=1).search
    rounds, state, _ = run(search)
    assert (state.calls, state.counted) == (budget + 10, budget)
    assert Counter(asked.operator for asked in rounds) == {"i1": 1, "e1": 25, "e2": 25, "m1": 25, "m2": 25}
    assert [asked.operator for asked in rounds[:6]] == ["i1", "e1", "e2", "m1", "m2", "e1"]
    sizes = {asked.operator: len(asked.slots) for asked in rounds}
    assert sizes == {"i1": 10, "e1": 10, "e2": 10, "m1": 10 * mutations, "m2": 10 * mutations}
    assert {asked.operator: len(asked.slots[0].parents) for asked in rounds} == {
        "i1": 0,
        "e1": 2,
        "e2": 2,
        "m1": 1,
        "m2": 1,
    }


@pytest.mark.parametrize("budget", [1, 9, 10, 11, 57, 1000])
@pytest.mark.parametrize("method", ["eoh", "sample"])
def test_the_budget_is_spent_to_the_call(budget, method):
    _, state, programs = run(toy_config(budget=budget, method=method).search)
    assert state.calls == state.counted == len(programs) == budget
    assert [p.call for p in programs] == list(range(budget))


@pytest.mark.parametrize(("accounting", "calls"), [("every_call", 60), ("published", None)])
def test_answers_without_a_program_are_asked_for_again(accounting, calls):
    def respond(asked, index):
        lost = asked.slots[index].number % 3 == 0 and asked.attempt < 2
        return answer(asked, index, objective=None if lost else 1.0, code="" if lost else "code")

    search = toy_config(budget=60, retries=2, accounting=accounting, initial_batches=1).search
    rounds, state, programs = run(search, respond)
    assert state.counted == 60 and (calls is None or state.calls == calls)
    again = [asked for asked in rounds if asked.attempt]
    assert {slot.number for asked in again for slot in asked.slots} == {0, 3, 6, 9}
    assert len({p.seed for p in programs}) == len(programs)
    if accounting == "published":
        asked_again = sum(p.attempt > 0 for p in programs)
        assert asked_again and state.calls == 60 + 10 + asked_again


def test_no_more_than_the_retries():
    search = toy_config(budget=10, retries=3, accounting="published", method="sample", batch_size=5).search
    rounds, state, _ = run(search, lambda asked, index: answer(asked, index, objective=None, code=""))
    assert [asked.attempt for asked in rounds] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert state.counted == 10 and state.best is None


def test_a_population_begins_again_while_it_is_empty():
    def respond(asked, index):
        return answer(asked, index, objective=None if asked.batch < 4 else 1.0)

    rounds, _, _ = run(toy_config(budget=100).search, respond)
    assert [asked.operator for asked in rounds[:6]] == ["i1"] * 5 + ["e1"]
    _, state, _ = run(toy_config(budget=35, accounting="published").search, lambda a, i: answer(a, i, objective=None))
    assert (state.counted, state.best) == (35, None)


def test_parents_are_what_the_operator_before_has_left():
    def respond(asked, index):
        return answer(asked, index, objective=float(1000 - asked.first_call - index))

    rounds, _, programs = run(toy_config(budget=200, initial_batches=1).search, respond)
    for asked in rounds[1:]:
        newest = {p.call for p in programs[asked.first_call - 10 : asked.first_call]}
        assert {p.call for slot in asked.slots for p in slot.parents} <= newest


def test_the_state_follows_from_the_programs():
    def respond(asked, index):
        return answer(asked, index, objective=float((asked.first_call + index) * 7919 % 100))

    search = toy_config(budget=150).search
    _, state, programs = run(search, respond)
    assert last_state(search, programs, direction="min") == (state, [])
    for cut in (0, 1, 10, 13, 25, 149):
        _, here = last_state(search, programs[:cut], direction="min")
        assert list(here) == programs[cut - len(here) : cut]


def test_programs_of_another_config_are_refused():
    _, _, programs = run(toy_config(budget=30).search)
    for changed in (toy_config(budget=30, seed=1), toy_config(budget=20), toy_config(budget=30, population_size=5)):
        with pytest.raises(EsoptError, match=r"program \d+ is not what the config asks for"):
            last_state(changed.search, programs, direction="min")
