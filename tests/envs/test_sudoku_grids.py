import hashlib
import itertools
import random
from collections import Counter

import pytest

from esopt_jax.envs.sudoku_grids import (
    all_grids_4x4,
    is_solution,
    shuffled_grid,
    solutions,
    split_grids_4x4,
    split_of,
    units,
)


def test_units_are_rows_columns_and_boxes():
    assert units(4)[0] == (0, 1, 2, 3)
    assert units(4)[4] == (0, 4, 8, 12)
    assert units(4)[9] == (2, 3, 6, 7)
    assert units(9)[9 + 8] == tuple(range(8, 81, 9))
    assert units(9)[18 + 4] == (30, 31, 32, 39, 40, 41, 48, 49, 50)


@pytest.mark.parametrize("size", [4, 9])
def test_every_cell_is_in_three_units(size):
    assert set(Counter(i for unit in units(size) for i in unit).values()) == {3}


def test_all_grids_4x4_are_those_of_a_brute_force_search():
    rows = ["".join(row) for row in itertools.permutations("1234")]
    bands = [
        a + b
        for a, b in itertools.product(rows, rows)
        if len({a[0], a[1], b[0], b[1]}) == len({a[2], a[3], b[2], b[3]}) == 4
    ]
    brute = [
        top + low
        for top, low in itertools.product(bands, bands)
        if all(len({*(top + low)[c::4]}) == 4 for c in range(4))
    ]
    assert len(brute) == 288
    assert set(all_grids_4x4()) == set(brute)
    assert list(all_grids_4x4()) == sorted(brute)


@pytest.mark.parametrize(
    "board",
    [
        "1234341221434311",  # a digit twice in a row
        "1234341243212341",  # columns fail, rows hold
        "1234234134124123",  # rows and columns hold, boxes fail
        "123434122143432.",  # a blank
    ],
)
def test_not_a_solution(board):
    assert not is_solution(board)


def test_solutions_finds_exactly_the_grids_that_agree_with_the_givens():
    rng = random.Random(0)
    for blanks in list(range(1, 16)) * 3:
        board = list(rng.choice(all_grids_4x4()))
        for i in rng.sample(range(16), blanks):
            board[i] = "."
        agreeing = [g for g in all_grids_4x4() if all(a in (".", b) for a, b in zip(board, g, strict=True))]
        assert sorted(solutions("".join(board), limit=300)) == agreeing
        assert len(solutions("".join(board), limit=2)) == min(2, len(agreeing))


def test_a_contradiction_has_no_solution():
    assert solutions("11..............") == []
    assert solutions("1234341243212341") == []  # full, and wrong
    assert solutions("12....3........4") == []  # r1c3 is left without a digit


def test_an_ambiguous_9x9_board_has_its_two_solutions():
    grid = shuffled_grid(random.Random(1), 9)
    columns = [0]  # a cycle of columns on which the first two rows hold the same digits
    while (column := grid[9:18].index(grid[columns[-1]])) != 0:
        columns.append(column)
    assert len(columns) < 9
    blanks = [*columns, *(9 + column for column in columns)]
    board = "".join("." if i in blanks else cell for i, cell in enumerate(grid))
    first, second = [list(grid[i : i + 9]) for i in (0, 9)]
    for column in columns:
        first[column], second[column] = second[column], first[column]
    swapped = "".join(first + second) + grid[18:]
    assert sorted(solutions(board, limit=9)) == sorted([grid, swapped])
    assert is_solution(swapped)


def test_solver_leaves_the_unique_9x9_solution():
    grid = shuffled_grid(random.Random(2), 9)
    board = "".join("." if i % 3 == 0 else cell for i, cell in enumerate(grid))
    assert grid in solutions(board, limit=1000)


def test_split_is_the_documented_hash():
    for grid in all_grids_4x4():
        assert split_of(grid) == (
            "train" if int(hashlib.sha256(grid.encode()).hexdigest()[:2], 16) % 10 < 6 else "eval"
        )
    train, held_out = split_grids_4x4("train"), split_grids_4x4("eval")
    assert (len(train), len(held_out)) == (157, 131)
    assert not set(train) & set(held_out)
    assert set(train) | set(held_out) == set(all_grids_4x4())


@pytest.mark.parametrize("size", [4, 9])
def test_shuffled_grids_are_different_solutions(size):
    rng = random.Random(3)
    grids = [shuffled_grid(rng, size) for _ in range(50)]
    assert all(map(is_solution, grids))
    assert len(set(grids)) > 35
    assert {grid[0] for grid in grids} == set("123456789"[:size])
