import re
import runpy
from pathlib import Path

import pytest

from esopt_jax.envs.sudoku import Sudoku

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_prompt_golden.py"))


def text(observation):
    (message,) = observation.messages
    return message["content"]


def about_tokens(prompt):
    """Words, single digits and runs of other characters: near what a tokenizer that splits digits makes of it."""
    return len(re.findall(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]+", prompt))


@pytest.mark.parametrize("name", GOLDEN["CASES"])
def test_the_agent_sees_the_golden_prompts(name):
    expected = (GOLDEN["FOLDER"] / f"{name}.txt").read_text(encoding="utf-8")
    assert GOLDEN["render"](*GOLDEN["CASES"][name]) == expected


@pytest.mark.parametrize("size", [4, 9])
def test_published_blocks_come_in_their_order(size):
    env = Sudoku(prompt="published", size=size, mask=5, train_tasks=1)
    state, first = env.reset(env.tasks("train")[0], 0)
    second = env.step(state, "hello").observation
    blocks = [
        "You are an agent",
        "\nset ROW COLUMN VALUE\n",
        "Last feedback:",
        "Puzzle (mask 5)",
        "Board now (turn 1",
        "Empty cells:",
    ]
    places = [text(second).find(block) for block in blocks]
    assert -1 not in places
    assert places == sorted(places)
    assert "Last feedback" not in text(first)
    assert "Board now (turn 0, blanks 5)" in text(first)
    for a, b in ((text(first), text(second)),):  # the instructions come first and never change
        assert a.split("\n\n")[0] == b.split("\n\n")[0]
    assert first.mode == second.mode == "fresh"


@pytest.mark.parametrize(("size", "mask", "tokens"), [(4, 6, 204), (9, 10, 430)])
def test_published_costs_about_what_the_published_prompt_did(size, mask, tokens):
    env = Sudoku(prompt="published", size=size, mask=mask, train_tasks=1)
    _, observation = env.reset(env.tasks("train")[0], 0)
    assert about_tokens(text(observation)) == pytest.approx(tokens, rel=0.1)


def test_published_lists_exactly_the_empty_cells():
    env = Sudoku(prompt="published", size=9, mask=15, train_tasks=5)
    for task in env.tasks("train"):
        _, observation = env.reset(task, 0)
        listed = re.findall(r"r(\d)c(\d)", text(observation).split("Empty cells: ")[1])
        assert [9 * int(r) + int(c) - 10 for r, c in listed] == [i for i, d in enumerate(task.data.givens) if d == "."]


def test_a_drawn_grid_reads_back_as_the_board():
    env = Sudoku(prompt="published", size=9, mask=20, train_tasks=1)
    (task,) = env.tasks("train")
    state, _ = env.reset(task, 0)
    cell = task.data.givens.index(".")
    step = env.step(state, f"set {cell // 9 + 1} {cell % 9 + 1} 5")
    drawn = ["".join(re.findall(r"[.\d]", row)) for row in re.findall(r"(?m)^r\d: (.*)$", text(step.observation))]
    assert "".join(drawn) == task.data.givens + step.state.board


def test_compact_is_the_bare_board_within_30_tokens_of_one_character():
    env = Sudoku(prompt="compact", mask=6, train_tasks=50)
    for task in env.tasks("train"):
        state, observation = env.reset(task, 0)
        assert text(observation) == "\n".join(task.data.givens[i : i + 4] for i in (0, 4, 8, 12))
        rejected = env.step(state, "hello").observation
        assert text(rejected) == text(observation) + "\nformat"
        assert len(text(observation)) == 19
