"""The action grammar of Sudoku, and what the rules make of an action.

    action = "set" blank ROW blank COLUMN blank VALUE

where `blank` is one or more spaces or tabs, `set` is in any case, and ROW, COLUMN and VALUE are decimal numbers
without leading zeros. Surrounding white space is ignored; anything else in the reply makes it no action. The published
parser took the first three digits of almost any text for a move: `1. set 3 4 5` played row 1, column 3, value 4.

A reply may begin with thoughts: when it holds `</think>`, only what follows the last one is read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from esopt_jax.envs.sudoku_grids import BLANK, BOX, DIGITS

_NUMBER = "(0|[1-9][0-9]*)"
_ACTION = re.compile(rf"set[ \t]+{_NUMBER}[ \t]+{_NUMBER}[ \t]+{_NUMBER}", re.IGNORECASE | re.ASCII)

Verdict = Literal["placed", "format", "range", "given", "filled"]


class Feedback(NamedTuple):
    """What became of an action. `cell` is an index, known from `given` on; `digit` is set when it was placed."""

    verdict: Verdict
    cell: int = -1
    digit: str = ""


@lru_cache(maxsize=len(BOX))
def _index(size: int) -> dict[str, int]:
    return {digit: i for i, digit in enumerate(DIGITS[:size])}


def parse_action(reply: str) -> tuple[str, str, str] | None:
    """Row, column and value as written, or None when the reply is not exactly one action.

    They stay text: a reply may hold a number of a million digits, which `int` refuses.

    Example:
        >>> parse_action("<think>row 1 lacks a 4</think> SET 1 3 4")
        ('1', '3', '4')
        >>> parse_action("1. set 3 4 5") is None
        True
    """
    match = _ACTION.fullmatch(reply.rpartition("</think>")[2].strip())
    return match.groups() if match else None  # type: ignore[return-value]


def judge(reply: str, board: str, *, givens: str, size: int) -> Feedback:
    """Apply the rules in their order: format, range, given cell, filled cell; else the digit may be placed.

    Whether the digit is right is not judged: a wrong one is placed without a word and cannot be taken back.
    """
    action = parse_action(reply)
    if action is None:
        return Feedback("format")
    row, column, digit = map(_index(size).get, action)
    if row is None or column is None or digit is None:
        return Feedback("range")
    cell = row * size + column
    if givens[cell] != BLANK:
        return Feedback("given", cell)
    if board[cell] != BLANK:
        return Feedback("filled", cell)
    return Feedback("placed", cell, DIGITS[digit])
