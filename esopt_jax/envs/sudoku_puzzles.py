"""Sudoku puzzles with exactly one solution, generated from (seed, split, index); splits share no solution grid."""

from __future__ import annotations

import json
import logging
import random
from functools import lru_cache
from typing import NamedTuple

from esopt_jax.envs.sudoku_grids import BLANK, DIGITS, SplitName, shuffled_grid, solutions, split_grids_4x4, split_of
from esopt_jax.errors import EsoptError

log = logging.getLogger(__name__)

MAX_MASK = {4: 12, 9: 55}
"""Most blanks by size. A 4x4 puzzle with fewer than 4 givens is ambiguous; at 9x9 it is what removal still reaches."""

_RANDOM_TRIES, _REMOVAL_TRIES, _NEW_TRIES = 100, 300, 200


class Puzzle(NamedTuple):
    """`givens` is the starting board, `solution` its only completion, `mask` the number of blanks."""

    size: int
    mask: int
    givens: str
    solution: str


@lru_cache(maxsize=16)
def generate_puzzles(size: int, masks: tuple[int, ...], split: SplitName, count: int, seed: int) -> tuple[Puzzle, ...]:
    """Up to `count` different puzzles; puzzle `i` has `masks[i % len(masks)]` blanks.

    At size 4 the split's grids are used in turn, in a fresh order each round, so that any prefix is spread evenly; the
    end comes early, with a warning, at the first grid that has no further puzzle (2512 train puzzles with mask 1). At
    size 9 every puzzle draws a grid of its own.

    Example:
        >>> generate_puzzles(4, (2,), "train", 1, 0)[0].givens.count(".")
        2
    """
    found: dict[str, Puzzle] = {}
    grids: list[str] = []
    for i in range(count):
        mask = masks[i % len(masks)]
        rng = random.Random(f"sudoku/{seed}/{size}/{split}/{mask}/{i}")
        if size == 4 and not grids:
            grids = list(split_grids_4x4(split))
            random.Random(f"sudoku/{seed}/{size}/{split}/round/{i // len(grids)}").shuffle(grids)
        grid = grids.pop() if size == 4 else _draw_grid(rng, size, split)
        givens = next((g for _ in range(_NEW_TRIES) if (g := _draw_givens(rng, grid, mask)) not in found), None)
        if givens is None:
            log.warning(
                "sudoku: %s has %d puzzles, not %d: there is no further one with mask %d", split, i, count, mask
            )
            break
        found[givens] = Puzzle(size, mask, givens, grid)
    return tuple(found.values())


def _draw_grid(rng: random.Random, size: int, split: SplitName) -> str:
    while split_of(grid := shuffled_grid(rng, size)) != split:
        pass
    return grid


def _draw_givens(rng: random.Random, grid: str, mask: int) -> str:
    """`grid` with `mask` blanks and one completion: blanked at random if possible, else one by one.

    Raises:
        EsoptError: neither way reached `mask`.
    """
    for _ in range(_RANDOM_TRIES):
        givens = blank_out(grid, rng.sample(range(len(grid)), mask))
        if len(solutions(givens)) == 1:
            return givens
    for _ in range(_REMOVAL_TRIES):
        givens = _remove_one_by_one(rng, grid, mask)
        if givens.count(BLANK) == mask:
            return givens
    raise EsoptError(f"mask {mask} was not reached on grid {grid}; choose a smaller mask")


def blank_out(grid: str, cells: list[int]) -> str:
    """`grid` with `cells` blanked."""
    board = list(grid)
    for i in cells:
        board[i] = BLANK
    return "".join(board)


def _remove_one_by_one(rng: random.Random, grid: str, mask: int) -> str:
    """Blank cells in random order, each only if the solution stays unique, until `mask` are blank or none is left."""
    givens = grid
    for i in rng.sample(range(len(grid)), len(grid)):
        if givens.count(BLANK) == mask:
            break
        attempt = blank_out(givens, [i])
        if len(solutions(attempt)) == 1:
            givens = attempt
    return givens


def puzzle_line(puzzle: Puzzle, *, index: int, split: SplitName) -> str:
    """One line of a data file, in the format of the published files: keys, their order, no spaces."""
    row = {
        "id": f"{split}-{index:06d}",
        "source": "generated",
        "split": split,
        "mask_count": puzzle.mask,
        "puzzle": _nested(puzzle.givens, puzzle.size),
        "solution": _nested(puzzle.solution, puzzle.size),
        "puzzle_compact": puzzle.givens,
        "solution_compact": puzzle.solution,
    }
    return json.dumps(row, separators=(",", ":")) + "\n"


def _nested(board: str, size: int) -> list[list[int]]:
    numbers = [0 if cell == BLANK else DIGITS.index(cell) + 1 for cell in board]
    return [numbers[i : i + size] for i in range(0, size * size, size)]
