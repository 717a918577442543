import hashlib
import json
import logging
from collections import Counter

import pytest

from esopt_jax.envs.sudoku_grids import is_solution, solutions, split_grids_4x4, split_of
from esopt_jax.envs.sudoku_puzzles import generate_puzzles, puzzle_line
from esopt_jax.errors import EsoptError


@pytest.mark.parametrize(
    ("size", "mask", "count"),
    [(4, 1, 50), (4, 6, 400), (4, 11, 50), (4, 12, 20), (9, 1, 10), (9, 10, 50), (9, 40, 10), (9, 55, 1)],
)
@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_puzzle_has_its_mask_one_solution_and_the_right_split(size, mask, count, split):
    puzzles = generate_puzzles(size, (mask,), split, count, 0)
    assert len(puzzles) == len({p.givens for p in puzzles}) == count
    for puzzle in puzzles:
        assert (puzzle.size, puzzle.mask, puzzle.givens.count(".")) == (size, mask, mask)
        assert is_solution(puzzle.solution)
        assert solutions(puzzle.givens) == [puzzle.solution]
        assert split_of(puzzle.solution) == split


@pytest.mark.parametrize(("size", "mask", "count"), [(4, 6, 1000), (9, 10, 200)])
def test_splits_share_no_solution_grid(size, mask, count):
    train, held_out = (generate_puzzles(size, (mask,), split, count, 0) for split in ("train", "eval"))
    assert not {p.solution for p in train} & {p.solution for p in held_out}


@pytest.mark.parametrize("split", ["train", "eval"])
def test_4x4_uses_every_grid_of_the_split_equally(split):
    grids = split_grids_4x4(split)
    counts = Counter(p.solution for p in generate_puzzles(4, (6,), split, 3 * len(grids) + 20, 0))
    assert set(counts) == set(grids)
    assert Counter(counts.values()) == {4: 20, 3: len(grids) - 20}


def test_masks_are_cycled_through_and_do_not_follow_the_grids():
    puzzles = generate_puzzles(4, (2, 5, 8), "train", 6 * 157, 0)
    assert [p.mask for p in puzzles] == [2, 5, 8] * (2 * 157)
    masks_of = {grid: {p.mask for p in puzzles if p.solution == grid} for grid in split_grids_4x4("train")}
    assert sum(len(masks) > 1 for masks in masks_of.values()) > 140


def test_a_prefix_is_a_smaller_data_set_and_seeds_differ():
    assert generate_puzzles(4, (6,), "eval", 300, 0)[:100] == generate_puzzles(4, (6,), "eval", 100, 0)
    assert not set(generate_puzzles(9, (6,), "eval", 20, 0)) & set(generate_puzzles(9, (6,), "eval", 20, 1))


@pytest.mark.parametrize(
    ("size", "digest"),
    [(4, "1950ff10d5eb03a0"), (9, "0ad98ad13a2152e2")],
)
def test_the_default_puzzles_never_change(size, digest):
    # every number reported so far was measured on them
    text = "".join(p.givens for split in ("train", "eval") for p in generate_puzzles(size, (6,), split, 256, 0))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_it_ends_early_when_a_grid_has_no_further_puzzle(caplog):
    with caplog.at_level(logging.WARNING, logger="esopt_jax"):
        puzzles = generate_puzzles(4, (1,), "train", 3000, 0)
    assert len(puzzles) == 157 * 16  # every cell of every grid
    assert "train has 2512 puzzles, not 3000" in caplog.text


def test_an_unreachable_mask_is_an_error():
    with pytest.raises(EsoptError, match="mask 13 was not reached"):
        generate_puzzles(4, (13,), "train", 1, 0)


def test_a_line_holds_the_board_both_ways():
    (puzzle,) = generate_puzzles(4, (3,), "eval", 1, 0)
    row = json.loads(puzzle_line(puzzle, index=7, split="eval"))
    assert (row["id"], row["source"], row["split"], row["mask_count"]) == ("eval-000007", "generated", "eval", 3)
    assert (row["puzzle_compact"], row["solution_compact"]) == (puzzle.givens, puzzle.solution)
    assert "".join(str(n or ".") for line in row["puzzle"] for n in line) == puzzle.givens
    assert "".join(str(n) for line in row["solution"] for n in line) == puzzle.solution
