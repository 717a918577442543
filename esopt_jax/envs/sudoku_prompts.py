"""What the Sudoku agent reads each turn. Every prompt is self-contained: the history is not shown.

`published` has the blocks of the published experiments, in their order, in our words: rules, action form, feedback,
puzzle, board, empty cells. The rules come first and never change, so that their state can be computed once. It costs
about 200 tokens at size 4 and 430 at size 9. `compact` is for tiny models: the bare board (19 characters at size 4)
and, after a rejected action, one word that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from esopt_jax.envs.sudoku_action import Feedback
from esopt_jax.envs.sudoku_grids import BLANK, BOX, DIGITS
from esopt_jax.envs.sudoku_puzzles import Puzzle

Render = Callable[[Puzzle, str, int, Feedback | None], str]
"""`(puzzle, board, turn, feedback of the last action) -> prompt`; `turn` counts from 0."""


def compact(puzzle: Puzzle, board: str, turn: int, feedback: Feedback | None) -> str:
    """The rows of the board; below them the verdict on the last action, if it was rejected."""
    size = puzzle.size
    lines = [board[i : i + size] for i in range(0, size * size, size)]
    if feedback is not None and feedback.verdict != "placed":
        lines.append(feedback.verdict)
    return "\n".join(lines)


def published(puzzle: Puzzle, board: str, turn: int, feedback: Feedback | None) -> str:
    """Rules, action form, feedback from the second turn on, the puzzle, the board now and its empty cells."""
    size, blanks = puzzle.size, [i for i, cell in enumerate(board) if cell == BLANK]
    blocks = [f"{_rules(size)}\nset ROW COLUMN VALUE"]
    if feedback is not None:
        blocks.append(f"Last feedback: {_explain(feedback, size)}")
    blocks.append(f"Puzzle (mask {puzzle.mask}):\n{_draw_givens(puzzle.givens, size)}")
    blocks.append(f"Board now (turn {turn}, blanks {len(blanks)}):\n{_draw(board, size)}")
    blocks.append("Empty cells: " + ", ".join(_name(i, size) for i in blanks))
    return "\n\n".join(blocks)


PROMPTS: dict[str, Render] = {"published": published, "compact": compact}


@lru_cache(maxsize=len(BOX))
def _rules(size: int) -> str:
    box = BOX[size]
    return (
        f"You are an agent that solves a {size}x{size} Sudoku and fills one empty cell per turn. "
        f"Rows and columns count from 1; lines separate the {box}x{box} boxes. "
        f"Each row, column and box must hold every digit from 1 to {size} once. "
        "Choose only a cell listed as empty, and keep the given digits. "
        "Reply with exactly one action line and nothing else:"
    )


def _explain(feedback: Feedback, size: int) -> str:
    if feedback.verdict == "format":
        return "that was not one action line of the required form"
    if feedback.verdict == "range":
        return f"row, column and value must be from 1 to {size}"
    cell = _name(feedback.cell, size)
    if feedback.verdict == "given":
        return f"{cell} is a given digit and cannot change"
    if feedback.verdict == "filled":
        return f"{cell} is already filled"
    return f"placed {feedback.digit} at {cell}"


def _name(cell: int, size: int) -> str:
    return f"r{cell // size + 1}c{cell % size + 1}"


def _draw(board: str, size: int) -> str:
    box = BOX[size]
    lines = ["    " + _bars([f"c{digit}" for digit in DIGITS[:size]], box)]
    for r in range(size):
        if r and r % box == 0:
            lines.append("    " + "+".join(["-" * (2 * box)] * box))
        lines.append(f"r{r + 1}: " + _bars(list(board[r * size : (r + 1) * size]), box))
    return "\n".join(lines)


_draw_givens = lru_cache(maxsize=4096)(_draw)


def _bars(cells: list[str], box: int) -> str:
    return " | ".join(" ".join(cells[i : i + box]) for i in range(0, len(cells), box))
