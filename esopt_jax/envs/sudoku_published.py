"""The published 9x9 data set, rebuilt bit by bit from its seed: 128 train and 128 eval puzzles.

The method was published with the PyTorch code of Agentic ESOpt (github `zz1358m/Agentic-ESOpt`, commit 8c08393). One
random stream runs through train and then eval, so the eval puzzles depend on the number of train puzzles. Uniqueness
was not checked when it was made; all 256 puzzles happen to have one solution.
"""

from __future__ import annotations

import random
from functools import lru_cache

from esopt_jax.envs.sudoku_grids import SplitName, shuffled_grid
from esopt_jax.envs.sudoku_puzzles import Puzzle, blank_out

SIZE = 9
MASKS = (5, 10, 15, 20)
COUNT = 128
"""Puzzles per split; puzzle `i` has `MASKS[i % 4]` blanks."""

_SEED = 20260701


@lru_cache(maxsize=1)
def published_puzzles() -> dict[SplitName, tuple[Puzzle, ...]]:
    """All puzzles of both splits, in the order of the published files."""
    rng = random.Random(_SEED)
    return {"train": _draw(rng), "eval": _draw(rng)}


def _draw(rng: random.Random) -> tuple[Puzzle, ...]:
    puzzles = []
    for i in range(COUNT):
        mask = MASKS[i % len(MASKS)]
        grid = shuffled_grid(rng, SIZE)
        cells = list(range(SIZE * SIZE))
        rng.shuffle(cells)
        puzzles.append(Puzzle(SIZE, mask, blank_out(grid, cells[:mask]), grid))
    return tuple(puzzles)
