"""Play an environment without a model and look at everything it returns: what `check` is made of."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from esopt_jax.envs.compare import IncomparableError, same
from esopt_jax.envs.timed_calls import HungError, TimedCaller
from esopt_jax.types import Environment, Observation, Step, Task

REPLIES = (
    "",
    " \n",
    "no idea",
    "yes",
    "A",
    "0",
    "1",
    "5",
    "-1",
    "1.5",
    "set 1 1 1",
    '{"action": 1}',
    "<think>hm</think>1",
    "</think>",
    "\x00",
    "\u00b2",  # a digit to `str.isdigit`, and an error to `int`
    "\u0663 \U0001f600 \u202e",
    "9" * 10_000,  # more digits than `int` reads
    "word " * 20_000,
)


class WrongError(Exception):
    """The environment breaks its contract: what, and how to mend it."""


class UnsureError(Exception):
    """Something that may be meant, or that cannot be checked."""


@dataclass
class Subject:
    """An environment under examination, and what the checks have found out so far.

    Attributes:
        environment: whose methods are called through `call`.
        call: with a time limit.
        episodes: played by each check that plays.
        max_turns: of an episode.
        replies: of the user, tried besides `REPLIES`.
        tasks: split -> its tasks, once they are known to be tasks.
        unended: ids of tasks of which an episode did not end.
    """

    environment: Environment
    call: TimedCaller
    episodes: int
    max_turns: int
    replies: tuple[str, ...] = ()
    tasks: dict[str, tuple[Task, ...]] = field(default_factory=dict)
    unended: list[str] = field(default_factory=list)

    def chosen(self) -> list[Task]:
        """`episodes` tasks, from both splits in turn."""
        splits = self.tasks["train"], self.tasks["eval"]
        return [splits[i % 2][i // 2 % len(splits[i % 2])] for i in range(self.episodes)]

    def any_reply(self, seed: int) -> Callable[[Observation], str]:
        """A player that draws from all replies, the same ones for the same seed."""
        rng = random.Random(seed)
        return lambda observation: rng.choice(replies_to(observation, self.replies))

    def play(
        self,
        task: Task,
        choose: Callable[[Observation], str],
        *,
        turns: int,
        seed: int = 0,
        beside: tuple[Task, int] | None = None,
    ) -> tuple[list[Any], bool]:
        """What the agent of one episode saw and got, and whether the episode ended.

        Args:
            task: to play.
            choose: the agent.
            turns: to play at most.
            seed: for `reset`.
            beside: task and seed of a second episode that takes its turns in between.
        """
        state, observation = self.reset(task, seed)
        other = None if beside is None else self.reset(*beside)
        seen: list[Any] = [observation]
        for _ in range(turns):
            if other is not None:
                step = self.step(other[0], "1")
                other = self.reset(*beside) if step.done else (step.state, step.observation)
            state, observation, reward, done, _ = self.step(state, choose(observation))
            seen.append((observation, float(reward), bool(done)))
            if done:
                return seen, True
        return seen, False

    # --- one call each, and a look at what it returned ---

    def ask_tasks(self, split: str) -> tuple[Any, ...]:
        """What `tasks` returns for a split."""
        tasks = self._call(f"tasks({split!r})", self.environment.tasks, split)
        if isinstance(tasks, str | bytes | Mapping) or not hasattr(tasks, "__len__") or not hasattr(tasks, "__iter__"):
            raise WrongError(f"tasks({split!r}) returned {type(tasks).__name__}; return a list or a tuple of Task")
        return tuple(tasks)

    def reset(self, task: Task, seed: int) -> tuple[Any, Observation]:
        """Start an episode."""
        result = self._call(f"reset(task {short(task.id)}, {seed})", self.environment.reset, task, seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise WrongError(f"reset returned {_kind(result)}; return (state, Observation)")
        _look_at(result[1], "reset")
        return result

    def step(self, state: Any, reply: str) -> Step:
        """Take a turn."""
        result = self._call(f"step(state, {short(reply)})", self.environment.step, state, reply)
        if not isinstance(result, tuple) or len(result) != 5:
            raise WrongError(f"step returned {_kind(result)}; return Step(state, observation, reward, done, info)")
        _, observation, reward, done, info = result
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise WrongError(f"step(state, {short(reply)}) gave the reward {short(reward)}; it must be a finite number")
        if type(done).__name__ not in ("bool", "bool_"):  # the second is NumPy's
            raise WrongError(f"step gave {short(done)} for done; it must be True or False")
        if done and observation is not None:
            raise WrongError("step gave an observation with done=True, which nobody reads; give None there")
        if not done:
            _look_at(observation, "step")
        if not isinstance(info, Mapping):
            raise WrongError(f"step gave {short(info)} for info; it must be a mapping, {{}} if there is nothing to say")
        return Step(*result)

    def _call(self, what: str, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self.call(what, method, *arguments)
        except HungError:
            raise
        except (Exception, SystemExit) as fault:
            reason = f"{type(fault).__name__}: {one_line(fault)}"
            fix = "it would count as an infrastructure error, not as a failure of the agent; handle it, or reward it 0"
            raise WrongError(f"{what} raised {reason}; {fix}") from fault


def _look_at(observation: Any, method: str) -> None:
    if not isinstance(observation, Observation):
        raise WrongError(f"{method} gave {_kind(observation)} where an Observation belongs")
    if observation.mode not in ("append", "fresh"):
        raise WrongError(f"{method} gave an Observation of mode {short(observation.mode)}; it is 'append' or 'fresh'")
    messages = observation.messages
    if not isinstance(messages, list | tuple) or not messages:
        raise WrongError(f"{method} gave the messages {short(messages)}; they must be a tuple of at least one message")
    for message in messages:
        texts = [message.get(key) for key in ("role", "content")] if isinstance(message, Mapping) else [None]
        if not all(isinstance(text, str) for text in texts) or not texts[0]:
            fix = "a message is {'role': 'user', 'content': 'text'}"
            raise WrongError(f"{method} gave the message {short(message)}; {fix}")
        try:
            texts[1].encode()
        except UnicodeEncodeError:
            raise WrongError(f"{method} gave {short(texts[1])}, whose lone surrogate no tokenizer reads") from None


def replies_to(observation: Observation, own: Sequence[str] = ()) -> list[str]:
    """Replies of all kinds: `REPLIES`, the user's `own`, what the environment said last, and its last word."""
    said = observation.messages[-1]["content"]
    return [*REPLIES, *own, said, *said.split()[-1:]]


def copied(value: Any) -> Any:
    """A deep copy.

    Raises:
        UnsureError: it cannot be copied.
    """
    try:
        return deepcopy(value)
    except Exception as fault:
        kind = type(value).__name__
        raise UnsureError(f"{kind} cannot be copied ({one_line(fault)}), so that this was not checked") from fault


def same_or_unsure(one: Any, other: Any) -> bool:
    """`compare.same`.

    Raises:
        UnsureError: they cannot be compared.
    """
    try:
        return same(one, other)
    except IncomparableError as fault:
        raise UnsureError(f"{one_line(fault)}, so that this was not checked") from fault


def short(value: Any) -> str:
    """Its `repr` in at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def one_line(fault: BaseException) -> str:
    """Its message on one line."""
    return " ".join(str(fault).split())


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
