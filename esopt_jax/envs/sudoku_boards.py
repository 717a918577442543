"""The boards of a recorded Sudoku episode, from what the agent read first and what it answered.

A record holds no boards. The first prompt shows the puzzle, and the rules say what each reply did to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from esopt_jax.envs.sudoku_action import judge
from esopt_jax.envs.sudoku_grids import BLANK, BOX, DIGITS


def played_boards(prompt: str, replies: Iterable[str], *, size: int) -> list[str] | None:
    r"""The board before the first reply, then the one after each.

    Args:
        prompt: the first of the episode in any style of `sudoku_prompts`, with whatever a chat template puts around it.
        replies: of the agent.
        size: of the board.

    Returns:
        Strings of `size * size` characters; None when the prompt shows no board of that size.

    Example:
        >>> played_boards("user: 12.4\n3412\n2143\n4321\n", ["what?", "set 1 3 3"], size=4)
        >>> played_boards("user:\n12.4\n3412\n2143\n4321\n", ["what?", "set 1 3 3"], size=4)
        ['12.4341221434321', '12.4341221434321', '1234341221434321']
    """
    givens = _shown(prompt, size)
    if givens is None:
        return None
    boards = [givens]
    for reply in replies:
        board, feedback = boards[-1], judge(reply, boards[-1], givens=givens, size=size)
        if feedback.verdict == "placed":
            board = board[: feedback.cell] + feedback.digit + board[feedback.cell + 1 :]
        boards.append(board)
    return boards


def _shown(prompt: str, size: int) -> str | None:
    """The first board in a prompt: bare rows, or rows that are named and divided into boxes."""
    bare, named = _patterns(size)
    if match := bare.search(prompt):
        return match[0].replace("\n", "")
    rows = [re.sub(r"[ |]", "", row) for row in named.findall(prompt)[:size]]
    return "".join(rows) if len(rows) == size else None


@lru_cache(maxsize=len(BOX))
def _patterns(size: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    cell = f"[{re.escape(BLANK + DIGITS[:size])}]"
    row = f"{cell}{{{size}}}"
    box = " ".join([cell] * BOX[size])
    return (
        re.compile(rf"^{row}(?:\n{row}){{{size - 1}}}(?!{cell})", re.MULTILINE),
        re.compile(rf"^r\d: ({' [|] '.join([box] * BOX[size])})$", re.MULTILINE),
    )
