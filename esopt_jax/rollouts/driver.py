"""Play episodes to their end: one policy, one environment, many rows that take their turns together.

Each turn the policy writes a reply for every row that still plays, and the environment's steps run in a pool of
threads. An episode ends in one of three ways. *Success*: the environment said done with a terminal reward of at least
`success_at`. *Failure*: it said done with less, or the agent ran out of turns or of room for its conversation.
*Error*: the environment raised, hung or returned nonsense, which says nothing about the agent; such an episode has no
reward.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.workers import Fault
from esopt_jax.types import Environment, Message, Observation, Outcome, Task, Trajectory, Turn

Ids = tuple[int, ...]


class Replies(NamedTuple):
    """What a policy wrote: `tokens: [N, n]` integers; the first `lengths: [N]` of a row count, end id included."""

    tokens: np.ndarray
    lengths: np.ndarray


class Policy(Protocol):
    """An agent with N rows of memory."""

    def act(self, prompts: Sequence[Ids], fresh: Sequence[bool], turn: int) -> Replies:
        """Read `prompts[row]` (empty: the row sits out), after forgetting everything where `fresh[row]`, and reply."""
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

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of `calls` in order, a `Fault` where there is none."""
        ...


@dataclass(frozen=True)
class Episode:
    """What a row is to play. `member` -1 is the unperturbed model, `case` the index of its task, `seed` for `reset`."""

    member: int
    case: int
    episode: int
    task: Task
    seed: int


@dataclass(frozen=True)
class Limits:
    """`max_turns` of an episode, and `max_prompt_tokens` before a reply, conversation included."""

    max_turns: int
    max_prompt_tokens: int


@dataclass(eq=False)
class _Seat:
    """A row in play. `tokens` counts its conversation; of its newest reply, the last id has not been read yet."""

    episode: Episode
    state: Any = None
    observation: Observation | None = None
    tokens: int = 0
    prompt: Ids = ()
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome | None = None
    error: str | None = None

    def fail(self, fault: Fault) -> None:
        self.outcome, self.error = "error", fault.reason


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
    episodes: Sequence[Episode | None],
    *,
    chat: Chat,
    pool: Pool,
    limits: Limits,
    generation: int = 0,
) -> list[Trajectory | None]:
    """Play one episode a row; None sits idle.

    Args:
        policy: has as many rows as there are `episodes`.
        environment: its `reset` and `step` run in the pool.
        episodes: `[N]`.
        chat: renders and decodes.
        pool: runs host calls; a `Fault` from it ends the episode as an error.
        limits: of turns and of tokens.
        generation: for the record.

    Raises:
        EsoptError: a first prompt is longer than `max_prompt_tokens`, or the chat template refuses it. Later in an
            episode the same is an error of that episode.
    """
    seats = [None if episode is None else _Seat(episode) for episode in episodes]
    playing = [seat for seat in seats if seat is not None]
    for seat, result in zip(playing, pool.run([_reset(environment, seat.episode) for seat in playing]), strict=True):
        _seat_down(seat, result)
    success_at = float(getattr(environment, "success_at", 1.0))
    for turn in range(limits.max_turns):
        started = perf_counter()
        fresh = _prepare([seat for seat in playing if seat.outcome is None], chat, limits, first=turn == 0)
        acting = [(row, seat) for row, seat in enumerate(seats) if seat is not None and seat.outcome is None]
        if not acting:
            break
        replies = policy.act(
            [() if seat is None or seat.outcome else seat.prompt for seat in seats],
            [seat is not None and id(seat) in fresh for seat in seats],
            turn,
        )
        said = _said(replies, [row for row, _ in acting])
        texts = [chat.text(ids) for ids in said]
        results = pool.run(
            [partial(environment.step, seat.state, text) for (_, seat), text in zip(acting, texts, strict=True)]
        )
        seconds = perf_counter() - started
        for (_, seat), ids, text, result in zip(acting, said, texts, results, strict=True):
            carried = id(seat) not in fresh
            _take_turn(seat, ids, text, result, seconds, carried, ids[-1] not in chat.stop_ids, success_at)
    return [None if seat is None else _record(seat, generation) for seat in seats]


def _reset(environment: Environment, episode: Episode) -> Callable[[], Any]:
    return partial(environment.reset, episode.task, episode.seed)


def _seat_down(seat: _Seat, result: Any) -> None:
    if isinstance(result, Fault):
        return seat.fail(result)
    try:
        seat.state, seat.observation = result
    except (TypeError, ValueError):
        return seat.fail(Fault(f"reset returned {type(result).__name__}, not (state, Observation)"))
    if not isinstance(seat.observation, Observation):
        seat.fail(Fault(f"reset returned {type(seat.observation).__name__} where an Observation belongs"))
    return None


def _prepare(seats: Sequence[_Seat], chat: Chat, limits: Limits, *, first: bool) -> set[int]:
    """Give every seat its next prompt, or end its episode. Returns the ids of the seats that start afresh."""
    fresh = [seat for seat in seats if not seat.turns or seat.observation.mode == "fresh"]  # type: ignore[union-attr]
    ids_of_fresh = {id(seat) for seat in fresh}
    growing = [seat for seat in seats if id(seat) not in ids_of_fresh]
    for group, append in ((fresh, False), (growing, True)):
        prompts = chat.prompts([seat.observation.messages for seat in group], append=append)  # type: ignore[union-attr]
        for seat, ids in zip(group, prompts, strict=True):
            _read(seat, ids, chat.end_of_turn, limits.max_prompt_tokens, append=append, first=first)
    return ids_of_fresh


def _read(seat: _Seat, ids: Ids | Fault, end_of_turn: int, room: int, *, append: bool, first: bool) -> None:
    if isinstance(ids, Fault):
        if first:
            raise EsoptError(f"task {seat.episode.task.id!r}: {ids.reason}")
        return seat.fail(ids)
    last = seat.turns[-1].completion_ids[-1] if append else end_of_turn
    # The newest token of a reply is not in the model's memory yet, and a reply cut short was never closed.
    seat.prompt = (last, *(() if last == end_of_turn else (end_of_turn,)), *ids) if append else ids
    seat.tokens = seat.tokens + len(seat.prompt) - 1 if append else len(ids)
    if seat.tokens <= room:
        return None
    problem = f"a prompt of {seat.tokens} tokens; rollout.max_prompt_tokens is {room}"
    if first:
        raise EsoptError(f"task {seat.episode.task.id!r} has {problem}: set it to at least {seat.tokens}")
    if append:
        last_turn = seat.turns[-1]
        seat.turns[-1] = replace(
            last_turn, info={**last_turn.info, "ended": f"no room: the conversation came to {problem}"}
        )
        seat.outcome = "failure"
        return None
    return seat.fail(Fault(f"the environment gave {problem}"))


def _said(replies: Replies, rows: Sequence[int]) -> list[Ids]:
    tokens = replies.tokens[rows].tolist()
    return [tuple(ids[:n]) for ids, n in zip(tokens, replies.lengths[rows].tolist(), strict=True)]


def _take_turn(
    seat: _Seat, ids: Ids, text: str, result: Any, seconds: float, carried: bool, truncated: bool, success_at: float
) -> None:
    """Record the exchange and what the environment made of it."""
    outcome = _checked(result)
    if isinstance(outcome, Fault):
        reward, done, info = math.nan, False, {"error": outcome.reason}
        seat.fail(outcome)
    else:
        seat.state, seat.observation, reward, done, info = outcome
    seat.tokens += len(ids)
    prompt = seat.prompt[1:] if carried else seat.prompt  # the first id of a continuation is in the last completion
    seat.turns.append(Turn(prompt, ids, text, reward, bool(info.get("invalid", False)), truncated, seconds, info))
    if done:
        seat.outcome = "success" if reward >= success_at else "failure"


def _checked(result: Any) -> tuple[Any, Observation | None, float, bool, Any] | Fault:
    """The five parts of a step, or why they are not."""
    if isinstance(result, Fault):
        return result
    try:
        state, observation, reward, done, info = result
        reward, done, info = float(reward), bool(done), dict(info or {})
    except (TypeError, ValueError):
        return Fault(f"step returned {type(result).__name__}, not (state, observation, reward, done, info)")
    if not math.isfinite(reward):
        return Fault(f"step returned the reward {reward}")
    if not done and not isinstance(observation, Observation):
        return Fault(f"step returned {type(observation).__name__} where an Observation belongs, and was not done")
    return state, observation, reward, done, info


def _record(seat: _Seat, generation: int) -> Trajectory:
    episode, turns = seat.episode, tuple(seat.turns)
    broken = seat.outcome == "error"
    return Trajectory(
        generation=generation,
        member=episode.member,
        case=episode.case,
        task_id=episode.task.id,
        episode=episode.episode,
        turns=turns,
        outcome=seat.outcome or "failure",  # out of turns: only an environment that says done can report success
        reward=math.nan if broken else math.fsum(turn.reward for turn in turns),
        terminal_reward=math.nan if broken or not turns else turns[-1].reward,
        error=seat.error,
    )
