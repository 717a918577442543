"""The state of a search, what it asks for next, and what becomes of it: no model, no files, no clock.

A batch asks for programs with one operator. Where answers without a program are asked for again, that is a round more
of the same batch. Everything follows from the config and the programs so far, so a recorded search is replayed to the
state it was in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from esopt_jax.errors import EsoptError
from esopt_jax.search.draws import request_seed
from esopt_jax.search.program import Direction, Operator, Program
from esopt_jax.search.selection import Population, choose_parents, survivors
from esopt_jax.search.settings import CYCLE, FIXED, EvolveConfig, SearchConfig, asked_for, evolves, group_of, shown


@dataclass(frozen=True)
class Slot:
    """One program that is asked for.

    Attributes:
        number: its place in the batch.
        parents: that are shown.
        seed: of the sampling.
        member: who is asked; None for the model itself.
    """

    number: int
    parents: Population
    seed: int
    member: int | None = None


@dataclass(frozen=True)
class Round:
    """What is asked for at once.

    Attributes:
        batch: number of the batch.
        operator: what is asked for.
        attempt: 0, or how often this was asked before.
        first_call: number of the call of the first slot.
        slots: the requests.
    """

    batch: int
    operator: Operator
    attempt: int
    first_call: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class SearchState:
    """Where a search is.

    Attributes:
        population: of programs, best first.
        best: the first program with the best objective so far.
        first: syntax key -> the first program that has it.
        calls: made so far.
        counted: of these, those that the budget counts.
        batch: number of the batch that is next or under way.
        operator: of that batch.
        generation: rounds of all operators that are over.
        initial: batches of i1 that began a population so far.
        attempt: of the batch under way.
        again: slots of the batch under way that are asked for again.
        written: programs of the batch under way.
    """

    population: Population = ()
    best: Program | None = None
    first: Mapping[str, Program] = field(default_factory=dict)
    calls: int = 0
    counted: int = 0
    batch: int = 0
    operator: Operator = "i1"
    generation: int = 0
    initial: int = 0
    attempt: int = 0
    again: tuple[int, ...] = ()
    written: tuple[Program, ...] = ()


def next_round(
    search: SearchConfig, state: SearchState, *, direction: Direction, es: EvolveConfig = FIXED
) -> Round | None:
    """What is asked for next; None at the end of the budget.

    Args:
        search: the config.
        state: where the search is.
        direction: of the objective.
        es: whether members write.
    """
    size = asked_for(search, state.operator)
    numbers: Sequence[int] = state.again if state.attempt else range(size)
    if _counts(search, state):
        numbers = numbers[: search.budget - state.counted]
    if not numbers:
        return None
    slots = []
    members = evolves(search, es, state.operator)
    for number in numbers:
        group = group_of(search, es, state.operator, number)
        parents = choose_parents(
            search.seed,
            state.batch,
            group,
            state.population,
            count=shown(search, state.operator),
            direction=direction,
            distinct=search.distinct_parents,
        )
        drawn = group if members and es.common_random_numbers else number
        seed = request_seed(search.seed, state.batch, drawn, state.attempt)
        slots.append(Slot(number, parents, seed, number if members else None))
    return Round(state.batch, state.operator, state.attempt, state.calls, tuple(slots))


def absorb(
    search: SearchConfig, state: SearchState, asked: Round, programs: Sequence[Program], *, direction: Direction
) -> SearchState:
    """The state after a round.

    Args:
        search: the config.
        state: before it.
        asked: the round.
        programs: one a slot, in their order.
        direction: of the objective.
    """
    first, best = dict(state.first), state.best
    for program in programs:
        if program.key:
            first.setdefault(program.key, program)
        if program.valid and (best is None or program.loss(direction) < best.loss(direction)):
            best = program
    counted = state.counted + (len(programs) if _counts(search, state) else 0)
    state = replace(state, first=first, best=best, calls=state.calls + len(programs), counted=counted)
    written = (*state.written, *programs)
    again = tuple(program.slot for program in programs if not program.code)
    if again and asked.attempt < search.retries:
        asking = replace(state, attempt=asked.attempt + 1, again=again, written=written)
        if not _counts(search, asking) or counted < search.budget:
            return asking
    population = survivors(
        search.seed,
        state.batch,
        state.population,
        written,
        size=search.population_size,
        direction=direction,
        duplicates=search.duplicates,
    )
    return _turn(search, replace(state, population=population, batch=state.batch + 1, attempt=0, again=(), written=()))


def replay(
    search: SearchConfig, programs: Sequence[Program], *, direction: Direction, es: EvolveConfig = FIXED
) -> Iterator[tuple[SearchState, Sequence[Program]]]:
    """The states that recorded programs led through, each with the programs of the round that has begun since.

    The last one is where the search goes on.

    Raises:
        EsoptError: the programs are not what this config asks for.
    """
    state = SearchState()
    left = programs
    while True:
        asked = next_round(search, state, direction=direction, es=es)
        here = left[: len(asked.slots)] if asked is not None else left
        check_follows(asked, here)
        yield state, here
        if asked is None or len(here) < len(asked.slots):
            return
        state, left = absorb(search, state, asked, here, direction=direction), left[len(here) :]


def check_follows(asked: Round | None, programs: Sequence[Program]) -> None:
    """Refuse programs that a round did not ask for.

    Raises:
        EsoptError: the message names the first one.
    """
    for index, program in enumerate(programs):
        slot = None if asked is None or index >= len(asked.slots) else asked.slots[index]
        if asked is not None and slot is not None:
            wanted = (asked.first_call + index, asked.batch, slot.number, asked.attempt, asked.operator, slot.seed)
            found = (program.call, program.batch, program.slot, program.attempt, program.operator, program.seed)
            shown = (tuple(parent.call for parent in slot.parents), slot.member)
            if wanted == found and shown == (program.parents, program.member):
                continue
        raise EsoptError(
            f"program {program.call} is not what the config asks for at this place: the programs, or the config, have "
            "been changed"
        )


def _counts(search: SearchConfig, state: SearchState) -> bool:
    """Whether the budget counts the calls of the round that is next."""
    first = search.method == "eoh" and state.operator == "i1" and state.initial == 0
    return search.accounting == "every_call" or not (first or state.attempt)


def _turn(search: SearchConfig, state: SearchState) -> SearchState:
    """On to the operator of the next batch."""
    if search.method == "sample":
        return replace(state, generation=state.generation + 1)
    if state.operator == "i1":
        initial, held = state.initial + 1, len(state.population)
        if held == 0 or (held < search.population_size and initial < search.initial_batches):
            return replace(state, initial=initial)
        return replace(state, initial=initial, operator=CYCLE[0])
    place = CYCLE.index(state.operator) + 1
    generation = state.generation + place // len(CYCLE)
    return replace(state, operator=CYCLE[place % len(CYCLE)], generation=generation)
