"""The multi-turn driver with a scripted policy: what is read, what is recorded, and how episodes end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.driver import Limits, play
from esopt_jax.rollouts.seats import Episode
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
    saying: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def turn_to(self, members):
        raise AssertionError("no lane has two members here")

    def begin(self, starts):
        at = {start.row: start for start in starts}
        rows = range(len(self.lines))
        self.heard.append(([at[r].prompt if r in at else () for r in rows], [r in at and at[r].fresh for r in rows]))
        self.saying |= {start.row: self._line(start.row, start.turn) for start in starts}

    def proceed(self):
        said, self.saying = self.saying, {}
        return said

    def _line(self, row, turn):
        line = self.lines[row]
        ids = self.chat._encode([line[min(turn, len(line) - 1)]])[0]
        return ids + ((self.chat.end_of_turn,) if self.stop else ())


def run(chat, environment, lines, *, max_turns=10, room=1000, stop=True, episodes=None, pool=None):
    policy = Scripted(chat, lines, stop=stop)
    tasks = environment.tasks("train")
    episodes = episodes or [Episode(m, 2, 1, tasks[2], 40 + m) for m in range(len(lines))]
    lanes = [[episode] for episode in episodes]
    limits = Limits(max_turns, room)
    with pool or StepPool(workers=2, timeout_s=5, retries=0) as pool:
        found = play(policy, environment, lanes, width=1, chat=chat, pool=pool, limits=limits, generation=9)
    return [episode for (episode,) in found], policy


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


# --- rows that come and go --------------------------------------------------------------------------------------------


@dataclass
class Rows:
    """Replies "a" on every row after as many calls of `proceed` as the row's `pace`; notes all it is told."""

    chat: Any
    pace: dict[int, int] = field(default_factory=dict)
    told: list[Any] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)

    def turn_to(self, members):
        assert not any(row // 2 == lane for lane, _ in members for row in self.left)
        self.told += [("turn", *pair) for pair in members]

    def begin(self, starts):
        assert not {start.row for start in starts} & self.left.keys()
        self.told.append(sorted((s.row, s.episode.member, s.episode.case, s.turn) for s in starts))
        self.left |= {start.row: self.pace.get(start.row, 1) for start in starts}

    def proceed(self):
        time.sleep(0.02)  # a device takes its time, in which the environment answers
        self.left = {row: count - 1 for row, count in self.left.items()}
        done = [row for row, count in self.left.items() if count == 0]
        for row in done:
            del self.left[row]
        return {row: (*self.chat._encode(["a"])[0], self.chat.end_of_turn) for row in done}


def play_lanes(chat, environment, lanes, *, patience=1.0, pace=None):
    policy, tasks = Rows(chat, pace or {}), environment.tasks("train")
    queues = [[Episode(member, case, 0, tasks[case], 0) for member, case in lane] for lane in lanes]
    with StepPool(workers=2, timeout_s=5, retries=0) as pool:
        found = play(
            policy, environment, queues, width=2, chat=chat, pool=pool, limits=Limits(9, 1000), patience=patience
        )
    return [[(e.member, e.case, len(e.turns), e.outcome) for e in lane] for lane in found], policy.told


def test_an_episode_that_ends_makes_room_for_the_next_and_a_member_for_the_next_member(chat):
    lanes = [[(0, 0), (0, 1), (0, 2), (7, 0)], [(1, 3)], []]
    found, told = play_lanes(chat, Counter(turns=1), lanes)
    assert found == [[(*who, 1, "success") for who in lane] for lane in lanes]
    assert told == [
        [(0, 0, 0, 0), (1, 0, 1, 0), (2, 1, 3, 0)],
        [(0, 0, 2, 0)],
        ("turn", 0, 7),
        [(0, 7, 0, 0)],
    ]


def test_patient_rows_stay_in_step_and_impatient_ones_do_not_wait_for_a_slow_one(chat):
    lanes, pace = [[(0, 0), (0, 1)], [(1, 0), (1, 1)]], {0: 5}
    found, patient = play_lanes(chat, Counter(turns=3), lanes, pace=pace)
    assert [len(rows) for rows in patient] == [4, 4, 4]
    same, impatient = play_lanes(chat, Counter(turns=3), lanes, pace=pace, patience=0.5)
    assert same == found
    assert max(turn for rows in impatient[:3] for _, _, _, turn in rows) >= 1
    slow = [i for i, rows in enumerate(impatient) if any(row == 0 for row, *_ in rows)]
    assert slow[1] > 1, "the others have begun turns in between"


def test_calls_that_are_open_when_the_policy_fails_do_not_run_beside_what_comes_next(chat):
    class Broken(Rows):
        def proceed(self):
            raise RuntimeError("device lost")

    tasks = Counter().tasks("train")
    with StepPool(workers=1, timeout_s=5, retries=0) as pool:
        with pytest.raises(RuntimeError, match="device lost"):
            play(
                Broken(chat),
                Counter(),
                [[Episode(0, 0, 0, tasks[0], 0)]],
                width=1,
                chat=chat,
                pool=pool,
                limits=Limits(9, 1000),
            )
        assert pool.collect(wait=False) == {}
        assert pool.run([lambda: 1]) == [1]
