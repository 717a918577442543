"""Episodes in play: which row each has, what it waits for, and what has been said in it so far."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, Literal

from esopt_jax.rollouts.workers import Fault
from esopt_jax.types import Environment, Observation, Outcome, Task, Trajectory, Turn

Ids = tuple[int, ...]
Phase = Literal["environment", "answered", "ready", "writing"]


@dataclass(frozen=True)
class Episode:
    """What a row is to play. `member` -1 is the unperturbed model, `case` the index of its task, `seed` for `reset`."""

    member: int
    case: int
    episode: int
    task: Task
    seed: int


@dataclass(eq=False)
class Seat:
    """An episode in play.

    Attributes:
        episode: what is played.
        place: its lane, and its number in the lane's queue.
        phase: in the `environment`; `answered` by it; `ready` with a prompt; or `writing` a reply.
        observation: what the environment showed last.
        prompt: what is read next, or was read last.
        fresh: whether it is read after forgetting everything.
        tokens: of the conversation; of the newest reply, the last one has not been read yet.
        outcome: None while it goes on.
    """

    episode: Episode
    place: tuple[int, int]
    phase: Phase = "environment"
    state: Any = None
    observation: Observation | None = None
    prompt: Ids = ()
    fresh: bool = True
    tokens: int = 0
    began: float = 0.0
    reply: tuple[Ids, str] = ((), "")
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome | None = None
    error: str | None = None

    def fail(self, fault: Fault) -> None:
        """End it as an infrastructure error."""
        self.outcome, self.error = "error", fault.reason

    def begin(self) -> None:
        """Its prompt is being read."""
        self.phase, self.began = "writing", perf_counter()

    def say(self, ids: Ids, text: str) -> None:
        """Its reply is written."""
        self.phase, self.reply = "environment", (ids, text)

    def call(self, environment: Environment) -> Callable[[], Any]:
        """What it asks of the environment."""
        if not self.reply[0]:
            return partial(environment.reset, self.episode.task, self.episode.seed)
        return partial(environment.step, self.state, self.reply[1])

    def hear(self, result: Any, *, max_turns: int, success_at: float, stop_ids: Ids) -> None:
        """Take what the environment answered."""
        self.phase = "answered"
        if not self.reply[0]:
            return self._sit_down(result)
        ids, text = self.reply
        outcome = _checked(result)
        if isinstance(outcome, Fault):
            reward, done, info = math.nan, False, {"error": outcome.reason}
            self.fail(outcome)
        else:
            self.state, self.observation, reward, done, info = outcome
        self.tokens += len(ids)
        prompt = self.prompt if self.fresh else self.prompt[1:]  # the first id of a continuation is in the last reply
        invalid, truncated = bool(info.get("invalid", False)), ids[-1] not in stop_ids
        seconds = perf_counter() - self.began
        self.turns.append(Turn(prompt, ids, text, reward, invalid, truncated, seconds, info, self.fresh))
        if done:
            self.outcome = "success" if reward >= success_at else "failure"
        elif self.outcome is None and len(self.turns) == max_turns:
            self.outcome = "failure"  # only an environment that says done can report success
        return None

    def read(self, ids: Ids, *, fresh: bool, end_of_turn: int, room: int) -> str | None:
        """Take the next prompt; returns what is wrong with it if it is longer than `room`, and then ends.

        The newest token of a reply is not in the model's memory yet, and a reply cut short was never closed.
        """
        self.phase, self.fresh = "ready", fresh
        if not fresh:
            last = self.turns[-1].completion_ids[-1]
            ids = (last, *(() if last == end_of_turn else (end_of_turn,)), *ids)
        self.prompt = ids
        self.tokens = len(ids) if fresh else self.tokens + len(ids) - 1
        if self.tokens <= room:
            return None
        problem = f"a prompt of {self.tokens} tokens; rollout.max_prompt_tokens is {room}"
        if fresh:
            self.fail(Fault(f"the environment gave {problem}"))
        else:
            ended = {**self.turns[-1].info, "ended": f"no room: the conversation came to {problem}"}
            self.turns[-1], self.outcome = replace(self.turns[-1], info=ended), "failure"
        return problem

    def record(self, generation: int) -> Trajectory:
        """The episode, which has ended."""
        episode, turns, broken = self.episode, tuple(self.turns), self.outcome == "error"
        return Trajectory(
            generation=generation,
            member=episode.member,
            case=episode.case,
            task_id=episode.task.id,
            episode=episode.episode,
            turns=turns,
            outcome=self.outcome or "failure",
            reward=math.nan if broken else math.fsum(turn.reward for turn in turns),
            terminal_reward=math.nan if broken or not turns else turns[-1].reward,
            error=self.error,
        )

    def _sit_down(self, result: Any) -> None:
        if isinstance(result, Fault):
            return self.fail(result)
        try:
            self.state, self.observation = result
        except (TypeError, ValueError):
            return self.fail(Fault(f"reset returned {type(result).__name__}, not (state, Observation)"))
        if not isinstance(self.observation, Observation):
            self.fail(Fault(f"reset returned {type(self.observation).__name__} where an Observation belongs"))
        return None


class Queues:
    """The episodes that wait for a row, a queue a lane, and those that have been played."""

    def __init__(self, lanes: Sequence[Sequence[Episode]], width: int) -> None:
        """`width` rows a lane; row r is of lane `r // width`."""
        self._width = width
        self._waiting = [deque(enumerate(queue)) for queue in lanes]
        self._members = [queue[0].member if queue else None for queue in lanes]
        self._played: list[list[Trajectory | None]] = [[None] * len(queue) for queue in lanes]

    def seat(self, seats: dict[int, Seat]) -> tuple[list[int], list[tuple[int, int]]]:
        """Give free rows to who is next; a lane turns to another member only when all its rows are free.

        Returns:
            The rows that were taken, and the lanes that turned, with their new members.
        """
        taken, turned = [], []
        for lane, waiting in enumerate(self._waiting):
            if not waiting:
                continue
            rows = range(lane * self._width, (lane + 1) * self._width)
            free = [row for row in rows if row not in seats]
            member = waiting[0][1].member
            if member != self._members[lane]:
                if len(free) < self._width:
                    continue
                self._members[lane] = member
                turned.append((lane, member))
            while free and waiting and waiting[0][1].member == member:
                index, episode = waiting.popleft()
                seats[free[0]] = Seat(episode, (lane, index))
                taken.append(free.pop(0))
        return taken, turned

    def leave(self, seat: Seat, generation: int) -> None:
        """Put an episode that has ended on the record."""
        lane, index = seat.place
        self._played[lane][index] = seat.record(generation)

    def played(self) -> list[list[Trajectory]]:
        """All episodes of each lane, in the order of its queue."""
        return [[episode for episode in lane if episode is not None] for lane in self._played]


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
