"""Play episodes to their end: one policy, one environment, a fixed number of rows that episodes come to and leave.

A row writes a reply, the environment's step runs in a pool of threads, and then the row is given its next prompt or,
where its episode has ended, the next episode that waits. Rows are lanes of equal width; a lane plays the episodes of
its queue in order, one member's after another's. Rows that are ready begin together once they are a share `patience`
of those in play: 1 keeps all rows in step; less lets replies overlap with the environment and with each other. What is
played does not depend on it, since no row's reply depends on another row.

An episode ends in one of three ways. *Success*: the environment said done with a terminal reward of at least
`success_at`. *Failure*: it said done with less, or the agent ran out of turns or of room for its conversation.
*Error*: the environment raised, hung or returned nonsense, which says nothing about the agent; such an episode has no
reward.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.clock import Clock
from esopt_jax.rollouts.seats import Episode, Ids, Queues, Seat
from esopt_jax.rollouts.workers import Fault
from esopt_jax.types import Environment, Message, Trajectory


class Start(NamedTuple):
    """What a row begins a turn with: it reads `prompt`, after forgetting everything where `fresh`."""

    row: int
    prompt: Ids
    fresh: bool
    episode: Episode
    turn: int


class Policy(Protocol):
    """An agent with rows of memory."""

    def turn_to(self, members: Sequence[tuple[int, int]]) -> None:
        """Play other members in lanes, given as (lane, member), none of whose rows is in play."""
        ...

    def begin(self, starts: Sequence[Start]) -> None:
        """Read prompts and begin replies; rows in the middle of theirs are left alone."""
        ...

    def proceed(self) -> dict[int, Ids]:
        """Write on; by row, the replies that have come to their end, end id included."""
        ...


class Chat(Protocol):
    """What the driver needs of `rollouts.chat.Chat`."""

    end_of_turn: int
    stop_ids: Ids

    def prompts(self, conversations: Sequence[Sequence[Message]], *, append: bool = False) -> list[Ids | Fault]:
        """Token ids of each conversation, or why there are none."""
        ...

    def text(self, reply: Ids) -> str:
        """The text of a reply."""
        ...


class Pool(Protocol):
    """What the driver needs of `rollouts.workers.StepPool`."""

    def submit(self, calls: Mapping[Hashable, Callable[[], Any]]) -> None:
        """Begin calls."""
        ...

    def collect(self, *, wait: bool = True) -> dict[Hashable, Any]:
        """Results that are there, by the names of their calls, a `Fault` where there is none."""
        ...

    def discard(self) -> None:
        """Forget the calls that are open."""
        ...


@dataclass(frozen=True)
class Limits:
    """`max_turns` of an episode, and `max_prompt_tokens` before a reply, conversation included."""

    max_turns: int
    max_prompt_tokens: int


@contextmanager
def _collecting_new_objects_only() -> Iterator[None]:
    """Keep the garbage collector off what was there before: with jax loaded, walking it costs as much as the turns."""
    if gc.get_freeze_count():  # somebody has frozen objects already, and unfreezing would undo that
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@_collecting_new_objects_only()
def play(
    policy: Policy,
    environment: Environment,
    lanes: Sequence[Sequence[Episode]],
    *,
    width: int,
    chat: Chat,
    pool: Pool,
    limits: Limits,
    clock: Clock | None = None,
    patience: float = 1.0,
    generation: int = 0,
) -> list[list[Trajectory]]:
    """Play the episodes of every lane.

    Args:
        policy: has `width` rows a lane; each lane holds its first member.
        environment: its `reset` and `step` run in the pool.
        lanes: queues of episodes, those of a member side by side.
        width: rows of a lane.
        chat: renders and decodes.
        pool: runs host calls; a `Fault` from it ends the episode as an error.
        limits: of turns and of tokens.
        clock: counts the time in which there is nothing to do but wait for the environment.
        patience: share of the rows in play that must be ready before any of them begins.
        generation: for the record.

    Returns:
        The trajectories of each lane, in the order of its queue.

    Raises:
        EsoptError: a first prompt is longer than `max_prompt_tokens`, or the chat template refuses it. Later in an
            episode the same is an error of that episode.
    """
    queues, seats = Queues(lanes, width), dict[int, Seat]()
    clock = Clock() if clock is None else clock
    success_at = float(getattr(environment, "success_at", 1.0))
    try:
        while True:
            taken, turned = queues.seat(seats)
            if not seats:
                return queues.played()
            if turned:
                policy.turn_to(turned)
            pool.submit({row: seats[row].call(environment) for row in taken})
            writing = any(seat.phase == "writing" for seat in seats.values())
            with nullcontext() if writing else clock("environment"):
                answers = _answers(pool, seats, patience, wait=not writing)
            for row, result in answers.items():
                seats[row].hear(result, max_turns=limits.max_turns, success_at=success_at, stop_ids=chat.stop_ids)
            _prepare([s for s in seats.values() if s.phase == "answered" and s.outcome is None], chat, limits)
            if ended := [row for row, seat in seats.items() if seat.outcome is not None]:
                for row in ended:
                    queues.leave(seats.pop(row), generation)
                continue  # whoever takes their place may begin together with the others
            if (starts := _starts(seats)) and len(starts) >= patience * len(seats):
                policy.begin(starts)
                for start in starts:
                    seats[start.row].begin()
                writing = True
            if writing:
                replies = policy.proceed()
                for row, ids in replies.items():
                    seats[row].say(ids, chat.text(ids))
                pool.submit({row: seats[row].call(environment) for row in replies})
    finally:
        pool.discard()


def _answers(pool: Pool, seats: Mapping[int, Seat], patience: float, *, wait: bool) -> dict[Any, Any]:
    """What the environment has answered; with `wait`, as much as it takes for enough rows to be ready."""
    found = pool.collect(wait=wait)
    ready = sum(seat.phase == "ready" for seat in seats.values())
    asked = sum(seat.phase == "environment" for seat in seats.values())
    while wait and len(found) < asked and ready + len(found) < patience * len(seats):
        found |= pool.collect()
    return found


def _starts(seats: Mapping[int, Seat]) -> list[Start]:
    ready = [(row, seat) for row, seat in seats.items() if seat.phase == "ready"]
    return [Start(row, seat.prompt, seat.fresh, seat.episode, len(seat.turns)) for row, seat in ready]


def _prepare(seats: Sequence[Seat], chat: Chat, limits: Limits) -> None:
    """Give every seat its next prompt, or end its episode."""
    fresh = [seat for seat in seats if not seat.turns or seat.observation.mode == "fresh"]  # type: ignore[union-attr]
    growing = [seat for seat in seats if seat.turns and seat.observation.mode != "fresh"]  # type: ignore[union-attr]
    for group, append in ((fresh, False), (growing, True)):
        prompts = chat.prompts([seat.observation.messages for seat in group], append=append)  # type: ignore[union-attr]
        for seat, ids in zip(group, prompts, strict=True):
            first, task = not seat.turns, seat.episode.task.id
            if isinstance(ids, Fault):
                if first:
                    raise EsoptError(f"task {task!r}: {ids.reason}")
                seat.fail(ids)
                continue
            room = limits.max_prompt_tokens
            problem = seat.read(ids, fresh=not append, end_of_turn=chat.end_of_turn, room=room)
            if problem is not None and first:
                raise EsoptError(f"task {task!r} has {problem}: set it to at least {seat.tokens}")
