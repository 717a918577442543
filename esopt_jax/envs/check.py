"""Check an environment against its contract, and for the mistakes that its author would otherwise meet in a run.

The checks play episodes without a model: replies are empty, odd, long, or taken from what the environment said. They
come in an order, and one that needs another to hold is skipped when that one fails, so that one mistake is one failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from esopt_jax.envs.check_play import (
    Subject,
    UnsureError,
    WrongError,
    copied,
    one_line,
    replies_to,
    same_or_unsure,
    short,
)
from esopt_jax.envs.timed_calls import HungError, TimedCaller
from esopt_jax.types import Environment, Task

Status = Literal["ok", "FAIL", "warning", "skipped"]

_SHORT = 3
"""Turns in which every reply is tried."""

_DEEP = 12
"""Turns that are compared; enough for what goes wrong to show, and cheap where a turn is not."""


@dataclass(frozen=True)
class Finding:
    """What came of one check. `detail` is one line: what was seen, or what is wrong and how to fix it."""

    check: str
    status: Status
    detail: str


def check_environment(
    environment: Environment,
    *,
    timeout_s: float = 10.0,
    episodes: int = 4,
    max_turns: int = 100,
    replies: Sequence[str] = (),
) -> list[Finding]:
    """Every check in its order.

    Args:
        environment: has the three methods.
        timeout_s: seconds that one call of a method may take. A call that takes longer ends the checks.
        episodes: played by each check that plays.
        max_turns: of an episode, before it counts as one that never ends.
        replies: what a good agent could say, tried besides the rest.

    Example:
        >>> from esopt_jax.envs.echo import Echo
        >>> {finding.status for finding in check_environment(Echo())}
        {'ok'}
    """
    subject = Subject(environment, TimedCaller(timeout_s), episodes, max_turns, tuple(replies))
    findings: dict[str, Finding] = {}
    hung = ""
    for check in CHECKS:
        wanting = [name for name in check.needs if findings[name].status in ("FAIL", "skipped")]
        if hung or wanting:
            findings[check.name] = Finding(check.name, "skipped", f"needs '{wanting[0]}'" if wanting else "a call hung")
            continue
        try:
            findings[check.name] = Finding(check.name, "ok", check.run(subject))
        except HungError as fault:
            hung = str(fault)
            findings[check.name] = Finding(check.name, "skipped", "a call hung")
        except WrongError as fault:
            findings[check.name] = Finding(check.name, "FAIL", one_line(fault))
        except UnsureError as fault:
            findings[check.name] = Finding(check.name, "warning", one_line(fault))
    return [*findings.values(), _time(subject.call, hung)]


def _time(call: TimedCaller, hung: str) -> Finding:
    if hung:
        fix = "it would be abandoned and its episode left out; give what it waits for a time limit"
        return Finding("time", "FAIL", f"{hung}: {fix}, or pass a longer --timeout-s")
    return Finding("time", "ok", f"the slowest of {call.count} calls took {call.longest_s:.3f} s")


def _success_at(subject: Subject) -> str:
    bar = getattr(subject.environment, "success_at", 1.0)
    if isinstance(bar, bool) or not isinstance(bar, int | float) or not math.isfinite(bar):
        raise WrongError(f"success_at is {short(bar)}; set it to the terminal reward of a success, such as 1.0")
    return f"an episode is a success when its last reward is at least {bar:g}"


def _tasks(subject: Subject) -> str:
    for split in ("train", "eval"):
        tasks = subject.ask_tasks(split)
        if not tasks:
            raise WrongError(f"tasks({split!r}) is empty; it must hold at least one Task")
        for task in tasks:
            if not isinstance(task, Task):
                raise WrongError(f"tasks({split!r}) holds {short(task)}; wrap it: Task(id='...', data=...)")
            if not isinstance(task.id, str) or not task.id:
                raise WrongError(f"tasks({split!r}) holds the id {short(task.id)}; an id must be a text")
        seen: set[str] = set()
        twice = next((task.id for task in tasks if task.id in seen or seen.add(task.id)), None)
        if twice is not None:
            raise WrongError(f"tasks({split!r}) holds the id {twice!r} twice; give every task an id of its own")
        subject.tasks[split] = tasks
    return f"{len(subject.tasks['train'])} to train on, {len(subject.tasks['eval'])} held out"


def _order(subject: Subject) -> str:
    for split, tasks in subject.tasks.items():
        again = subject.ask_tasks(split)
        if [task.id for task in again] != [task.id for task in tasks] or not same_or_unsure(again, tasks):
            fix = "keep a list with a fixed order, and draw at random only with a seed of its own"
            raise WrongError(f"tasks({split!r}) gave other tasks, or another order, when called again; {fix}")
    return "two calls give the same tasks"


def _splits(subject: Subject) -> str:
    train, held_out = subject.tasks["train"], subject.tasks["eval"]
    by_id = {task.id for task in train}
    by_data = {_key(task): task.id for task in train if task.data is not None}
    for task in held_out:
        fix = "held-out tasks must be new to the agent, so split them by what is to be solved"
        if task.id in by_id:
            raise WrongError(f"task {task.id!r} is in both splits; {fix}")
        if task.data is not None and _key(task) in by_data:
            raise WrongError(f"eval task {task.id!r} has the data of train task {by_data[_key(task)]!r}; {fix}")
    return "no task is in both, by id and by data"


def _key(task: Task) -> object:
    try:
        hash(task.data)
    except TypeError:
        return repr(task.data)
    return task.data


def _reset(subject: Subject) -> str:
    for task in subject.chosen():
        before = copied(task.data)
        subject.reset(task, 0)
        if not same_or_unsure(before, task.data):
            raise WrongError(f"reset changed the data of task {task.id!r}; copy what you change, as in list(task.data)")
    return "a state and messages"


def _step(subject: Subject) -> str:
    tasks = subject.chosen()
    _, observation = subject.reset(tasks[0], 0)
    replies = replies_to(observation, subject.replies)
    for i, reply in enumerate(replies):
        subject.play(tasks[i % len(tasks)], lambda _, reply=reply: reply, turns=_SHORT)
    for i, task in enumerate(tasks):
        _, ended = subject.play(task, subject.any_reply(i), turns=subject.max_turns)
        subject.unended += [] if ended else [task.id]
    return f"{len(replies)} kinds of replies, odd ones too"


def _state(subject: Subject) -> str:
    fix = "build a new one, as with dataclasses.replace, a tuple, or a copy"
    for i, task in enumerate(subject.chosen()):
        state, observation = subject.reset(task, 0)
        earlier = []
        choose = subject.any_reply(i)
        for turn in range(_DEEP):
            before = copied(state)
            earlier.append((state, before))
            for reply in replies_to(observation, subject.replies) if turn < _SHORT else ():
                tried = copied(state)
                subject.step(tried, reply)
                if not same_or_unsure(tried, before):
                    raise WrongError(f"step(state, {short(reply)}) changed the state that it was given; {fix}")
            step = subject.step(state, choose(observation))
            if any(not same_or_unsure(state, before) for state, before in earlier):
                raise WrongError(f"step changed a state that it was given, or an earlier one; {fix}")
            if step.done:
                break
            state, observation = step.state, step.observation
    return "step leaves the state it is given as it was"


def _repeat(subject: Subject) -> str:
    for i, task in enumerate(subject.chosen()):
        state, observation = subject.reset(task, 0)
        choose = subject.any_reply(i)
        for turn in range(_DEEP):
            replies = replies_to(observation, subject.replies) if turn < _SHORT else []
            for reply in (*replies, choose(observation)):
                step = subject.step(state, reply)
                if not same_or_unsure(_of_interest(step), _of_interest(subject.step(state, reply))):
                    fix = "all that changes in an episode belongs in the state, also a random.Random that it draws from"
                    raise WrongError(f"step(state, {short(reply)}) gave another result when it was repeated; {fix}")
            if step.done:
                break
            state, observation = step.state, step.observation
    return "the same state and reply give the same result"


def _of_interest(step: tuple) -> tuple:
    """Without the rest of `info`, which may hold times."""
    state, observation, reward, done, info = step
    return state, observation, float(reward), bool(done), bool(info.get("invalid", False))


def _seed(subject: Subject) -> str:
    tasks = subject.chosen()
    for i, task in enumerate(tasks):
        first = subject.reset(task, i)
        if not same_or_unsure(first, subject.reset(task, i)):
            fix = "draw from random.Random(seed), and let nothing else in"
            raise WrongError(f"reset(task, {i}) gave another episode when it was repeated; {fix}")
        alone, _ = subject.play(task, subject.any_reply(i), turns=_DEEP, seed=i)
        other = tasks[(i + 1) % len(tasks)]
        beside, _ = subject.play(task, subject.any_reply(i), turns=_DEEP, seed=i, beside=(other, i + 1))
        if not same_or_unsure(alone, beside):
            fix = "many are played at once, so what belongs to an episode belongs in its state and not on self"
            raise WrongError(f"an episode went another way while a second one was played; {fix}")
    return "the same task and seed give the same episode, also while others are played"


def _end(subject: Subject) -> str:
    if subject.unended:
        raise UnsureError(
            f"an episode of task {subject.unended[0]!r} had not ended after {subject.max_turns} turns; a run stops it "
            "at rollout.max_turns, as a failure: return done=True in the end, or set that key to what it needs"
        )
    return f"every episode ends within {subject.max_turns} turns"


class _Check(NamedTuple):
    """`needs` names the checks without which `run` would mean nothing."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Subject], str]


CHECKS = (
    _Check("success_at", (), _success_at),
    _Check("tasks", (), _tasks),
    _Check("order", ("tasks",), _order),
    _Check("splits", ("tasks",), _splits),
    _Check("reset", ("tasks",), _reset),
    _Check("step", ("reset",), _step),
    _Check("state", ("step",), _state),
    _Check("repeat", ("state",), _repeat),
    _Check("seed", ("repeat",), _seed),
    _Check("end", ("step",), _end),
)
