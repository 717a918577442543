"""Sudoku boards as strings: rules, solver, solution grids and the hash that assigns a grid to a split.

A board of size `n` is a string of `n * n` characters in reading order: digits, and `.` for a blank cell. Strings are
immutable, cheap to copy and to compare, and print as they are stored.
"""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache
from math import isqrt
from typing import Literal

BOX = {4: 2, 9: 3}
"""Board size -> side of a box."""

DIGITS = "123456789"
BLANK = "."
SplitName = Literal["train", "eval"]


@lru_cache(maxsize=len(BOX))
def units(size: int) -> tuple[tuple[int, ...], ...]:
    """Cell indices of every unit: first the rows, then the columns, then the boxes."""
    cells, box, band = range(size * size), BOX[size], size * BOX[size]
    rows = [tuple(i for i in cells if i // size == r) for r in range(size)]
    columns = [tuple(i for i in cells if i % size == c) for c in range(size)]
    boxes = [tuple(i for i in cells if (i // band, i % size // box) == (b // box, b % box)) for b in range(size)]
    return (*rows, *columns, *boxes)


@lru_cache(maxsize=len(BOX))
def _units_of(size: int) -> tuple[tuple[int, ...], ...]:
    """For every cell, the numbers of its row, column and box in `units`."""
    return tuple(tuple(u for u, unit in enumerate(units(size)) if i in unit) for i in range(size * size))


def is_solution(board: str) -> bool:
    """Whether every row, column and box holds each digit exactly once.

    Example:
        >>> is_solution("1234341221434321")
        True
        >>> is_solution("1234341221434312")
        False
    """
    size = isqrt(len(board))
    wanted = set(DIGITS[:size])
    return all({board[i] for i in unit} == wanted for unit in units(size))


def solutions(board: str, *, limit: int = 2) -> list[str]:
    """Up to `limit` completions of `board`; two are enough to know that a puzzle is ambiguous.

    Depth first, always on the blank with the fewest candidates.

    Example:
        >>> solutions("12.434122143.321")
        ['1234341221434321']
    """
    size = isqrt(len(board))
    units_of, cells = _units_of(size), list(board)
    free = [(1 << size) - 1] * (3 * size)  # per unit, a bit for each digit that it still lacks
    blanks = [i for i, cell in enumerate(cells) if cell == BLANK]
    for i, cell in enumerate(cells):
        if cell != BLANK:
            bit = 1 << DIGITS.index(cell)
            for unit in units_of[i]:
                if not free[unit] & bit:
                    return []
                free[unit] ^= bit
    found: list[str] = []

    def search() -> None:
        if not blanks:
            found.append("".join(cells))
            return
        fewest, best, candidates = size + 1, 0, 0
        for n, i in enumerate(blanks):
            r, c, b = units_of[i]
            options = free[r] & free[c] & free[b]
            if (count := options.bit_count()) < fewest:
                fewest, best, candidates = count, n, options
                if count <= 1:
                    break
        cell = blanks.pop(best)
        r, c, b = units_of[cell]
        while candidates and len(found) < limit:
            bit = candidates & -candidates
            candidates ^= bit
            for unit in (r, c, b):
                free[unit] ^= bit
            cells[cell] = DIGITS[bit.bit_length() - 1]
            search()
            for unit in (r, c, b):
                free[unit] ^= bit
        cells[cell] = BLANK
        blanks.insert(best, cell)

    search()
    return found


def split_of(grid: str) -> SplitName:
    """The split that owns a solution grid, whatever is blanked in it: no grid is ever in both.

    The first byte of the SHA-256 of its digits, modulo 10: below 6 is train.
    """
    return "train" if hashlib.sha256(grid.encode()).digest()[0] % 10 < 6 else "eval"


@lru_cache(maxsize=1)
def all_grids_4x4() -> tuple[str, ...]:
    """All 288 solution grids of size 4, in ascending order."""
    return tuple(sorted(solutions(BLANK * 16, limit=1000)))


def split_grids_4x4(split: SplitName) -> tuple[str, ...]:
    """The solution grids of size 4 that `split` owns: 166 for train, 122 for eval."""
    return tuple(grid for grid in all_grids_4x4() if split_of(grid) == split)


def shuffled_grid(rng: random.Random, size: int) -> str:
    """A solution grid: the cyclic pattern `box * (r mod box) + r div box + c` with its parts shuffled.

    Bands and the rows inside each, then stacks and columns likewise, then the digits. It is how the published puzzles
    were drawn, and the order of the draws is part of that data set. It reaches one isotopy class of grids.
    """
    box = BOX[size]

    def lines() -> list[int]:
        bands = list(range(box))
        rng.shuffle(bands)
        order = []
        for band in bands:
            inside = list(range(box))
            rng.shuffle(inside)
            order += [box * band + line for line in inside]
        return order

    rows, columns = lines(), lines()
    digits = list(DIGITS[:size])
    rng.shuffle(digits)
    return "".join(digits[(box * (r % box) + r // box + c) % size] for r in rows for c in columns)
