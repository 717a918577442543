"""What a batch that members wrote says about them, and the record of the updates that followed.

`updates.jsonl` has a row an update: what `Updated` holds, and the batch. The updates follow from the programs,
so a search that goes on makes them again and compares digests with the rows.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from esopt_jax.errors import EsoptError
from esopt_jax.search.draws import word
from esopt_jax.search.program import Direction, Program
from esopt_jax.search.rewards import batch_rewards, losses_of
from esopt_jax.search.settings import EvolveConfig, SearchConfig, asked_for, evolves, group_of
from esopt_jax.search.state import SearchState
from esopt_jax.search.writer import Reply, Request
from esopt_jax.training.jsonl import JsonlWriter, read_lines

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Updated:
    """What an update was.

    Attributes:
        update: its number, from 0; names the noise of its members.
        sigma: of that noise.
        alpha: learning rate.
        rewards: of the members.
        weights: the coefficients that followed.
        norm: length of the step; 0 where the rewards did not tell the members apart.
        digest: of the weights after it.
    """

    update: int
    sigma: float
    alpha: float
    rewards: tuple[float, ...]
    weights: tuple[float, ...]
    norm: float
    digest: str


class Evolver(Protocol):
    """A writer whose weights learn from what its members wrote."""

    def write(self, requests: Sequence[Request]) -> list[Reply]:
        """As `writer.Writer.write`; requests that name a member are answered by it."""
        ...

    def learn(self, rewards: Sequence[float]) -> Updated:
        """Move the weights; the next members are perturbed anew."""
        ...


def member_rewards(
    search: SearchConfig, es: EvolveConfig, before: SearchState, programs: Sequence[Program], *, direction: Direction
) -> list[float] | None:
    """The rewards of the members after a batch; None where it was none of theirs, or the budget cut it short.

    Args:
        search: the config.
        es: the config of the updates.
        before: the state in which the batch was asked for.
        programs: all of the batch; of a slot that was asked again, the last one counts.
        direction: of the objective.
    """
    last = {program.slot: program for program in programs}
    if not evolves(search, es, before.operator) or len(last) < asked_for(search, before.operator):
        return None
    written = [last[slot] for slot in sorted(last)]
    population = {program.call: program.loss(direction) for program in before.population}
    rewards = batch_rewards(
        es.rewards,
        losses_of(written, direction),
        shown=[[population[call] for call in program.parents] for program in written],
        population=list(population.values()),
        groups=[group_of(search, es, before.operator, slot) for slot in sorted(last)],
    )
    found = [float(reward) for reward in rewards]
    if es.control == "shuffled_rewards":
        order = sorted(range(len(found)), key=lambda member: word(es.seed, "shuffle", before.batch, member))
        found = [found[member] for member in order]
    return found


def finished_batches(
    states: Iterator[tuple[SearchState, Sequence[Program]]],
) -> Iterator[tuple[SearchState, tuple[Program, ...]]]:
    """Of the states of a replay, those in which a batch was asked for, with all programs of it."""
    before: tuple[SearchState, Sequence[Program]] | None = None
    for state, here in states:
        if before is not None and state.batch > before[0].batch:
            yield before[0], (*before[0].written, *before[1])
        before = state, here


class Lessons:
    """Teaches an evolver batch by batch, and keeps the record. A context manager."""

    def __init__(self, path: Path, evolver: Evolver, search: SearchConfig, es: EvolveConfig, direction: Direction):
        """Go on with the record at `path`, or begin it."""
        lines = read_lines(path) if path.exists() else None
        self._path, self._evolver, self._search, self._es, self._direction = path, evolver, search, es, direction
        self._earlier = [] if lines is None else lines.rows
        self._writer = JsonlWriter(path, keep=None if lines is None else lines.size)
        self._done = 0

    def learn(self, before: SearchState, programs: Sequence[Program]) -> None:
        """Take a batch that is over; the weights move if members wrote it."""
        rewards = member_rewards(self._search, self._es, before, programs, direction=self._direction)
        if rewards is None:
            return
        updated = self._evolver.learn(rewards)
        if self._done < len(self._earlier):
            self._compare(updated, self._earlier[self._done])
        else:
            self._writer.write({**dataclasses.asdict(updated), "batch": before.batch})
        self._done += 1

    def _compare(self, updated: Updated, row: dict[str, Any]) -> None:
        if row.get("update") != updated.update or row.get("rewards") != list(updated.rewards):
            raise EsoptError(f"{self._path}, line {self._done + 1} is no update of these programs: one was changed")
        if row.get("digest") != updated.digest:
            log.warning(
                "update %d gave other weights than those recorded: this is another platform, or the model has changed; "
                "going on with these",
                updated.update,
            )

    def __enter__(self) -> Lessons:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.__exit__()
