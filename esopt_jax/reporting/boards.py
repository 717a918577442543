"""The board of every turn, where there is one: what the environment drew, or for Sudoku what its rules say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

from esopt_jax.config import Config
from esopt_jax.reporting.episode import Decode
from esopt_jax.types import Trajectory, Turn

BOARD = "board"
"""Under this name in `Turn.info` an environment may put a board: a string with line breaks, or a list of rows."""


def episode_boards(episode: Trajectory, config: Config, decode: Decode | None) -> list[str | None]:
    """The board before the first turn, then the one after each, rows joined by line breaks.

    Args:
        episode: of any environment.
        config: of its run.
        decode: of its model; without it no Sudoku is known.
    """
    if config.env.name == "sudoku" and decode is not None and episode.turns:
        return _sudoku(episode.turns, decode, config.env.options)
    return [None, *(_drawn(turn.info) for turn in episode.turns)]


def _sudoku(turns: Sequence[Turn], decode: Decode, options: Mapping[str, Any]) -> list[str | None]:
    from esopt_jax.envs.sudoku import Sudoku
    from esopt_jax.envs.sudoku_boards import played_boards

    size = options.get("size", Sudoku.size)
    boards = played_boards(decode(turns[0].prompt_ids), [turn.text for turn in turns], size=size)
    return [None] * (len(turns) + 1) if boards is None else [_in_rows(board) for board in boards]


def _in_rows(board: str) -> str:
    size = isqrt(len(board))
    return "\n".join(board[i : i + size] for i in range(0, len(board), size))


def _drawn(info: Mapping[str, Any]) -> str | None:
    board = info.get(BOARD)
    if isinstance(board, list | tuple) and board and all(isinstance(row, str) for row in board):
        return "\n".join(board)
    return board if isinstance(board, str) and board else None
