"""The multi-turn driver with a scripted policy: what is read, what is recorded, and how episodes end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.driver import Episode, Limits, Replies, play
from esopt_jax.rollouts.workers import StepPool
from esopt_jax.types import Observation, Step, Task


def say(text: str, mode: str = "fresh") -> Observation:
    return Observation(({"role": "user", "content": text},), mode=mode)


@dataclass
class Counter:
    """Counts the actions. `script` maps the action's text to what happens; anything else is a plain turn."""

    turns: int = 3
    mode: str = "fresh"
    script: dict[str, Any] = field(default_factory=dict)
    resets: list[int] = field(default_factory=list)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{i}") for i in range(4)]

    def reset(self, task: Task, seed: int) -> tuple[int, Observation]:
        self.resets.append(seed)
        return 0, say("0", self.mode)

    def step(self, state: int, action: str) -> Step:
        if action in self.script:
            return self.script[action](state)
        done = state + 1 == self.turns
        return Step(
            state + 1, None if done else say(str(state + 1), self.mode), float(done), done, {"invalid": action == "?"}
        )


@dataclass
class Scripted:
    """Replies with given texts, row by row and turn by turn, and keeps what it was asked."""

    chat: Any
    lines: list[list[str]]
    heard: list[tuple[list[tuple[int, ...]], list[bool]]] = field(default_factory=list)
    stop: bool = True

    def act(self, prompts, fresh, turn):
        self.heard.append((list(prompts), list(fresh)))
        ids = [
            self.chat._encode([row[min(turn, len(row) - 1)]])[0] + ((self.chat.end_of_turn,) if self.stop else ())
            for row in self.lines
        ]
        tokens = np.full((len(ids), max(map(len, ids)) + 2), -1)
        for row, line in zip(tokens, ids, strict=True):
            row[: len(line)] = line
        return Replies(tokens, np.array([len(line) for line in ids]))


def run(chat, environment, lines, *, max_turns=10, room=1000, stop=True, episodes=None, pool=None):
    policy = Scripted(chat, lines, stop=stop)
    tasks = environment.tasks("train")
    episodes = episodes or [Episode(m, 2, 1, tasks[2], 40 + m) for m in range(len(lines))]
    with pool or StepPool(workers=2, timeout_s=5, retries=0) as pool:
        found = play(policy, environment, episodes, chat=chat, pool=pool, limits=Limits(max_turns, room), generation=9)
    return found, policy


def test_a_fresh_episode_records_every_exchange(chat):
    environment = Counter()
    (episode,), policy = run(chat, environment, [["a", "?", "c"]])
    assert (episode.generation, episode.member, episode.case, episode.episode) == (9, 0, 2, 1)
    assert episode.task_id == "train-2"
    assert environment.resets == [40]
    assert [turn.text for turn in episode.turns] == ["a", "?", "c"]
    assert [turn.invalid for turn in episode.turns] == [False, True, False]
    assert [turn.truncated for turn in episode.turns] == [False] * 3
    assert [turn.prompt_ids for turn in episode.turns] == [chat.prompts([say(str(i)).messages])[0] for i in range(3)]
    assert episode.turns[0].completion_ids[-1] == chat.end_of_turn
    assert all(fresh == [True] for _, fresh in policy.heard)
    assert (episode.outcome, episode.reward, episode.terminal_reward, episode.error) == ("success", 1.0, 1.0, None)
    assert all(turn.seconds > 0 for turn in episode.turns)


@pytest.mark.parametrize("stop", [True, False])
def test_an_appended_episode_is_one_text_and_each_token_is_read_once(chat, stop):
    """The newest token of a reply is read with the next segment; a reply that was cut short is closed first."""
    (episode,), policy = run(chat, Counter(mode="append"), [["a", "bc", "d"]], stop=stop)
    assert [fresh for _, fresh in policy.heard] == [[True], [False], [False]]
    spoken = [id for turn in episode.turns for id in (*turn.prompt_ids, *turn.completion_ids)]
    end = [] if stop else [chat.end_of_turn]
    expected = list(chat.prompts([say("0").messages])[0])
    for text, number in (("a", 1), ("bc", 2), ("d", 3)):
        expected += [*chat._encode([text])[0], *([chat.end_of_turn] if stop else [])]
        if number < 3:
            expected += [*end, *chat.prompts([say(str(number)).messages], append=True)[0]]
    assert spoken == expected
    memory: list[
        int
    ] = []  # what a model has read after each segment, plus the reply it wrote itself but for its last token
    for (prompts, _), turn in zip(policy.heard, episode.turns, strict=True):
        memory += [*prompts[0], *turn.completion_ids[:-1]]
    assert memory == expected[:-1]
    assert [turn.truncated for turn in episode.turns] == [not stop] * 3


def test_rows_end_on_their_own_and_then_sit_out(chat):
    finish = {"stop": lambda s: Step(s, None, 0.25, True, {})}
    found, policy = run(chat, Counter(script=finish), [["stop"], ["a"], ["a", "stop"]])
    assert [len(e.turns) for e in found] == [1, 3, 2]
    assert [e.outcome for e in found] == ["failure", "success", "failure"]
    assert [[bool(p) for p in prompts] for prompts, _ in policy.heard] == [
        [True] * 3,
        [False, True, True],
        [False, True, False],
    ]
    assert found[0].terminal_reward == 0.25


def test_idle_rows_are_never_asked(chat):
    environment = Counter()
    episodes = [None, Episode(0, 0, 0, environment.tasks("train")[0], 1), None]
    found, policy = run(chat, environment, [["x"], ["a"], ["x"]], episodes=episodes)
    assert found[0] is None
    assert found[2] is None
    assert found[1].outcome == "success"
    assert all(not prompts[0] and not prompts[2] for prompts, _ in policy.heard)


def test_success_is_for_the_environment_to_say(chat):
    big_but_not_done = {"a": lambda s: Step(s + 1, say("x"), 5.0, False, {})}
    (episode,), _ = run(chat, Counter(script=big_but_not_done), [["a"]], max_turns=2)
    assert (episode.outcome, len(episode.turns), episode.reward) == ("failure", 2, 10.0)
    environment = Counter()
    environment.success_at = 1.5
    (episode,), _ = run(chat, environment, [["a"]])
    assert episode.outcome == "failure"


def test_a_plain_tuple_is_a_step(chat):
    (episode,), _ = run(chat, Counter(script={"a": lambda s: (s, None, True, 1, None)}), [["a"]])
    assert (episode.outcome, episode.reward, episode.turns[0].info) == ("success", 1.0, {})


def boom(state):
    raise RuntimeError("service lost")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (boom, "RuntimeError: service lost"),
        (lambda s: None, "step returned NoneType"),
        (lambda s: (s, say("x"), 0.0, False), "step returned tuple"),
        (lambda s: (s, None, 0.0, False, {}), "where an Observation belongs"),
        (lambda s: (s, say("x"), math.nan, False, {}), "reward nan"),
        (lambda s: (s, say("x"), "good", False, {}), "step returned tuple"),
        (lambda s: (s, Observation(({"role": "wizard", "content": ""},)), 0.0, False, {}), "unknown role"),
        (lambda s: (s, say("x" * 200), 0.0, False, {}), "the environment gave a prompt of"),
    ],
)
def test_a_broken_environment_is_an_error_of_that_episode_alone(chat, result, reason):
    found, _ = run(chat, Counter(script={"bad": result}), [["a", "bad"], ["a"]], room=100)
    bad, good = found
    assert bad.outcome == "error"
    assert reason in bad.error
    assert math.isnan(bad.reward)
    assert math.isnan(bad.terminal_reward)
    assert good.outcome == "success"
    assert len(bad.turns) == 2


def test_a_reset_that_fails_is_an_error_without_turns(chat):
    class Broken(Counter):
        def reset(self, task, seed):
            if seed == 40:
                raise OSError("no disk")
            return say("0") if seed == 41 else (0, "text") if seed == 42 else super().reset(task, seed)

    found, policy = run(chat, Broken(), [["a"]] * 4)
    assert [e.outcome for e in found] == ["error"] * 3 + ["success"]
    assert "no disk" in found[0].error
    assert "not (state, Observation)" in found[1].error
    assert found[0].turns == ()
    assert [bool(p) for p in policy.heard[0][0]] == [False] * 3 + [True]


def test_a_step_that_hangs_ends_its_episode_only(chat):
    hang = {"hang": lambda s: time.sleep(60)}
    pool = StepPool(workers=2, timeout_s=0.3, retries=1)
    started = time.monotonic()
    found, _ = run(chat, Counter(script=hang), [["hang"], ["a"], ["a"]], pool=pool)
    assert time.monotonic() - started < 10
    assert [e.outcome for e in found] == ["error", "success", "success"]
    assert "timed out" in found[0].error
    assert pool.abandoned == 2
    assert pool.faults == 1


def test_a_first_prompt_that_is_too_long_is_bad_input(chat):
    with pytest.raises(
        EsoptError, match=r"'train-2' has a prompt of \d+ tokens; rollout.max_prompt_tokens is 10: set it to"
    ):
        run(chat, Counter(), [["a"]], room=10)

    class Rude(Counter):
        def reset(self, task, seed):
            return 0, Observation(({"role": "wizard", "content": ""},))

    with pytest.raises(EsoptError, match=r"'train-2': the chat template refuses .* unknown role"):
        run(chat, Rude(), [["a"]])


def test_a_conversation_that_outgrows_its_room_is_a_failure_of_the_agent(chat):
    lines = [["a"], ["b" * 40]]
    first = len(chat.prompts([say("0").messages])[0])
    more = len(chat.prompts([say("1").messages], append=True)[0])
    room = first + 2 * (2 + more)  # exactly what the brief agent needs for its third turn
    found, _ = run(chat, Counter(mode="append"), lines, room=room)
    assert [e.outcome for e in found] == ["success", "failure"]
    assert len(found[1].turns) == 1
    assert "no room" in found[1].turns[-1].info["ended"]
    assert found[1].reward == 0
    (late,), _ = run(chat, Counter(mode="append"), lines[:1], room=room - 1)
    assert (late.outcome, len(late.turns)) == ("failure", 2)


def test_out_of_turns_is_a_failure(chat):
    (episode,), _ = run(chat, Counter(turns=5), [["a"]], max_turns=4)
    assert (episode.outcome, len(episode.turns)) == ("failure", 4)
