"""One mistake in an environment is one check that fails, and it is the right one."""

import itertools
import math
import random
import re
import threading
import time

import pytest

from esopt_jax.envs.check import CHECKS, check_environment
from esopt_jax.envs.registry import BUILT_IN, make_environment
from esopt_jax.types import Observation, Step, Task

NAMES = [*(check.name for check in CHECKS), "time"]


def say(text, mode="fresh"):
    return Observation(({"role": "user", "content": text},), mode=mode)


class Good:
    """Digits that follow from the seed; the agent hears one a turn."""

    turns = 3

    def tasks(self, split):
        return [Task(f"{split}-{i}", [split, i]) for i in range(3)]

    def reset(self, task, seed):
        digits = random.Random(f"{task.id}/{seed}").choices("0123456789", k=self.turns)
        return {"digits": digits, "turn": 0}, say(digits[0])

    def step(self, state, action):
        turn = state["turn"] + 1
        done = turn == self.turns
        observation = None if done else say(state["digits"][turn])
        reward = float(action.strip() == state["digits"][turn - 1])
        return Step({**state, "turn": turn}, observation, reward, done, {"invalid": False})


def changed(**fields):
    """A `Good` whose step has other fields."""

    class Changed(Good):
        def step(self, state, action):
            return super().step(state, action)._replace(**fields)

    return Changed


def method(**methods):
    return type("Changed", (Good,), methods)


class Twice(Good):
    def tasks(self, split):
        return [*super().tasks(split), Task(f"{split}-1", "other")]


class Shuffled(Good):
    def __init__(self):
        self.order = itertools.count()

    def tasks(self, split):
        tasks = super().tasks(split)
        return tasks[::-1] if next(self.order) > 1 else tasks


class FreshData(Good):
    count = itertools.count()

    def tasks(self, split):
        return [Task(f"{split}-{i}", next(self.count)) for i in range(3)]


class SpoilsTask(Good):
    def reset(self, task, seed):
        task.data.append(seed)
        return super().reset(task, seed)


class ThrowsOnSuperscript(Good):
    def step(self, state, action):
        return super().step(state, str(int(action)) if action.isdigit() else action)


class ReadsNumbers(Good):
    def step(self, state, action):
        return super().step(state, str(int(action)) if re.fullmatch("[0-9]+", action) else action)


class BrokenLater(Good):
    def step(self, state, action):
        step = super().step(state, action)
        return step._replace(reward=math.nan) if step.done else step


class InPlace(Good):
    def step(self, state, action):
        step = super().step(dict(state), action)
        state["turn"] += 1
        return step._replace(state=state)


class SpoilsEarlierState(Good):
    """The state is new each turn, but a list in it is shared with the earlier ones."""

    def reset(self, task, seed):
        state, observation = super().reset(task, seed)
        return {**state, "replies": []}, observation

    def step(self, state, action):
        state["replies"].append(action)
        return super().step(state, action)


class SpoilsLate(SpoilsEarlierState):
    """Where no more than one reply a turn is tried."""

    turns = 8

    def step(self, state, action):
        if state["turn"] == 5:
            state["replies"].append(action)
        return Good.step(self, state, action)


class SpoilsFirstState(Good):
    """The state that it is given stays, but the one before it does not."""

    def reset(self, task, seed):
        self.first, observation = super().reset(task, seed)
        return self.first, observation

    def step(self, state, action):
        if state["turn"] > 0:
            self.first["digits"] = [action]
        return super().step(dict(state), action)


class Dice(Good):
    def step(self, state, action):
        return super().step(state, action)._replace(reward=random.random())


class CountsOnSelf(Good):
    turn = 0

    def step(self, state, action):
        self.turn += 1
        return super().step(state, action)._replace(reward=float(self.turn))


class Unseeded(Good):
    def reset(self, task, seed):
        return super().reset(task, random.random())


class EpisodeOnSelf(Good):
    """Remembers the last episode that was started; a second one at the same time spoils the first."""

    def reset(self, task, seed):
        state, observation = super().reset(task, seed)
        self.digits = state["digits"]
        return {"turn": 0}, observation

    def step(self, state, action):
        step = super().step({**state, "digits": self.digits}, action)
        return step._replace(state={"turn": step.state["turn"]})


class Endless(Good):
    def step(self, state, action):
        return Step({**state, "turn": state["turn"] + 1}, say("again"), 0.0, False, {})


class Locked(Good):
    def reset(self, task, seed):
        state, observation = super().reset(task, seed)
        return {**state, "lock": threading.Lock()}, observation


def hangs(name):
    return method(**{name: lambda *_: time.sleep(30)})


NO_TASK, MESSAGE = ["a", "b"], {"role": "user", "content": "hi"}
FAULTS = [
    ("success_at", method(success_at="high"), "success_at is 'high'"),
    ("success_at", method(success_at=math.nan), "success_at is nan"),
    ("success_at", method(success_at=True), "success_at is True"),
    ("tasks", method(tasks=lambda *_: []), r"tasks\('train'\) is empty"),
    ("tasks", method(tasks=lambda _, split: [Task("a")] if split == "train" else ()), r"tasks\('eval'\) is empty"),
    ("tasks", method(tasks=lambda *_: NO_TASK), r"holds 'a'; wrap it: Task\("),
    ("tasks", method(tasks=lambda _, split: (Task(f"{split}-{i}") for i in "ab")), "returned generator; return a list"),
    ("tasks", method(tasks=lambda *_: {"a": Task("a")}), "returned dict; return a list"),
    ("tasks", method(tasks=lambda *_: None), "returned NoneType; return a list"),
    ("tasks", method(tasks=lambda *_: [Task(3)]), "the id 3; an id must be a text"),
    ("tasks", method(tasks=lambda *_: {}["x"]), r"tasks\('train'\) raised KeyError: 'x'"),
    ("tasks", method(tasks=lambda self: []), r"tasks\('train'\) raised TypeError"),
    ("tasks", Twice, "holds the id 'train-1' twice"),
    ("order", Shuffled, "another order, when called again"),
    ("order", FreshData, "gave other tasks"),
    ("splits", method(tasks=lambda *_: [Task("a", 1)]), "task 'a' is in both splits"),
    ("splits", method(tasks=lambda _, split: [Task(split, [1])]), "'eval' has the data of train task 'train'"),
    ("splits", method(tasks=lambda _, split: [Task(split, "same")]), "'eval' has the data of train task 'train'"),
    ("reset", method(reset=lambda *_: say("hi")), r"returned Observation; return \(state, Observation\)"),
    ("reset", method(reset=lambda *_: (0, "hi")), "reset gave str where an Observation belongs"),
    ("reset", method(reset=lambda *_: (0, say("hi", "apend"))), "mode 'apend'; it is 'append' or 'fresh'"),
    ("reset", method(reset=lambda *_: (0, Observation(()))), r"the messages \(\); they must be"),
    ("reset", method(reset=lambda *_: (0, Observation(MESSAGE))), "they must be a tuple of at least one message"),
    ("reset", method(reset=lambda *_: (0, Observation(("hi",)))), "gave the message 'hi'; a message is"),
    ("reset", method(reset=lambda *_: (0, Observation(({"role": "user"},)))), "a message is {'role'"),
    ("reset", method(reset=lambda *_: (0, say(3))), "a message is {'role'"),
    ("reset", method(reset=lambda *_: (0, say("\ud800"))), "lone surrogate"),
    ("reset", method(reset=lambda *_: 1 / 0), r"reset\(task 'train-0', 0\) raised ZeroDivisionError"),
    ("reset", SpoilsTask, "reset changed the data of task 'train-0'"),
    ("step", method(step=lambda *_: (0, None, 1.0, True)), "returned a tuple of 4; return Step"),
    ("step", method(step=lambda *_: None), "returned NoneType; return Step"),
    ("step", changed(reward="1"), "the reward '1'; it must be a finite number"),
    ("step", changed(reward=None), "the reward None"),
    ("step", changed(reward=math.inf), "the reward inf"),
    ("step", BrokenLater, "the reward nan"),
    ("step", changed(done=1), "gave 1 for done; it must be True or False"),
    ("step", changed(done=True), "an observation with done=True"),
    ("step", changed(done=False), "step gave NoneType where an Observation belongs"),
    ("step", changed(observation="hi", done=False), "step gave str where an Observation belongs"),
    ("step", changed(observation=say("hi", "x"), done=False), "mode 'x'"),
    ("step", changed(info=None), "gave None for info; it must be a mapping"),
    ("step", ThrowsOnSuperscript, r"step\(state, '²'\) raised ValueError.*infrastructure error"),
    ("step", ReadsNumbers, r"step\(state, '9999.*raised ValueError: Exceeds the limit"),
    ("step", method(step=lambda *_: exit(7)), "raised SystemExit: 7"),
    ("state", InPlace, r"step\(state, ''\) changed the state"),
    ("state", SpoilsEarlierState, "changed the state"),
    ("state", SpoilsLate, "changed a state that it was given, or an earlier one"),
    ("state", SpoilsFirstState, "or an earlier one"),
    ("repeat", Dice, r"step\(state, ''\) gave another result when it was repeated"),
    ("repeat", CountsOnSelf, "gave another result when it was repeated"),
    ("seed", Unseeded, r"reset\(task, 0\) gave another episode when it was repeated"),
    ("seed", EpisodeOnSelf, "went another way while a second one was played"),
]


def statuses(findings):
    assert [finding.check for finding in findings] == NAMES
    assert all("\n" not in finding.detail for finding in findings)
    return {finding.check: finding.status for finding in findings}


def test_a_good_environment_passes_every_check():
    findings = check_environment(Good(), timeout_s=5.0)
    assert set(statuses(findings).values()) == {"ok"}, findings


@pytest.mark.parametrize(("check", "factory", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_one_mistake_fails_one_check(check, factory, message):
    findings = check_environment(factory(), timeout_s=5.0)
    failed = [finding for finding in findings if finding.status == "FAIL"]
    assert [finding.check for finding in failed] == [check], failed
    assert re.search(message, failed[0].detail), failed[0].detail
    assert "warning" not in statuses(findings).values()


def test_every_check_that_can_fail_has_a_faulty_environment():
    assert {check for check, _, _ in FAULTS} == set(NAMES) - {"end", "time"}  # the two below


@pytest.mark.parametrize(("name", "before"), [("tasks", 1), ("reset", 4), ("step", 5)])
def test_a_call_that_hangs_ends_the_checks(name, before):
    started = time.monotonic()
    findings = check_environment(hangs(name)(), timeout_s=0.2)
    assert time.monotonic() - started < 5
    found = statuses(findings)
    assert list(found.values()) == ["ok"] * before + ["skipped"] * (10 - before) + ["FAIL"]
    assert re.match(rf"{name}\(.* had not returned after 0.2 s: ", findings[-1].detail)


def test_an_episode_that_never_ends_is_a_warning():
    findings = check_environment(Endless(), timeout_s=5.0, max_turns=7)
    assert [finding.check for finding in findings if finding.status != "ok"] == ["end"]
    (end,) = (finding for finding in findings if finding.check == "end")
    assert end.status == "warning" and "had not ended after 7 turns" in end.detail and "rollout.max_turns" in end.detail
    assert statuses(check_environment(Good(), max_turns=3))["end"] == "ok"
    assert statuses(check_environment(Good(), max_turns=2))["end"] == "warning"


def test_a_state_that_cannot_be_copied_is_a_warning_and_no_failure():
    findings = check_environment(Locked(), timeout_s=5.0)
    found = statuses(findings)
    assert found["state"] == "warning" and "FAIL" not in found.values()
    assert "dict cannot be copied" in next(f.detail for f in findings if f.check == "state")


def test_what_needs_a_failed_check_is_skipped_and_says_why():
    findings = {f.check: f for f in check_environment(method(reset=lambda *_: None)())}
    skipped = [name for name, finding in findings.items() if finding.status == "skipped"]
    assert skipped == ["step", "state", "repeat", "seed", "end"]
    assert findings["step"].detail == "needs 'reset'" and findings["seed"].detail == "needs 'repeat'"


def test_replies_of_the_user_find_what_odd_ones_do_not():
    class Fussy(Good):
        def step(self, state, action):
            if action == "open sesame":
                raise RuntimeError("boom")
            return super().step(state, action)

    assert "FAIL" not in statuses(check_environment(Fussy())).values()
    assert statuses(check_environment(Fussy(), replies=["open sesame"]))["step"] == "FAIL"


def test_info_may_hold_times():
    class Timed(Good):
        def step(self, state, action):
            return super().step(state, action)._replace(info={"seconds": time.perf_counter()})

    assert set(statuses(check_environment(Timed())).values()) == {"ok"}


@pytest.mark.parametrize(
    ("name", "prompt", "options"),
    [
        ("echo", None, {}),
        ("echo", None, {"turns": 1, "count": 1}),
        ("oneword", None, {}),
        ("oneword", None, {"turns": 1, "count": 8}),
        ("sudoku", "published", {"size": 4}),
        ("sudoku", "compact", {"size": 4, "mask": [1, 6], "progress_reward": 0.5, "invalid_penalty": 0.1}),
        ("sudoku", "published", {"size": 9, "mask": 20}),
        ("sudoku", "compact", {"size": 9, "source": "published", "mask": [5, 10]}),
    ],
)
def test_registered_environments_pass(name, prompt, options):
    environment = make_environment(name, prompt=prompt, options=options)
    replies = ["set 1 1 1", "set 2 3 4", "set 4 4 2"]
    assert set(statuses(check_environment(environment, timeout_s=60.0, replies=replies)).values()) == {"ok"}


def test_every_registered_environment_is_in_the_test_above():
    assert set(BUILT_IN) == {"echo", "oneword", "sudoku"}
