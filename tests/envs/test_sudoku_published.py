import hashlib

import pytest

from esopt_jax.envs.sudoku import Sudoku
from esopt_jax.envs.sudoku_grids import is_solution, solutions
from esopt_jax.envs.sudoku_published import published_puzzles
from esopt_jax.envs.sudoku_puzzles import puzzle_line


@pytest.mark.parametrize(
    ("split", "size", "digest"),
    [
        ("train", 84_832, "cd66364e776831b8c40be9e0b91b38605daee086bfb1dd829ac5b43ae675df59"),
        ("eval", 84_576, "10b072c941f2716da1e047cc9068ee5765983c50ab16b6ffe356f59b03a26388"),
    ],
)
def test_the_published_files_are_rebuilt_byte_for_byte(split, size, digest):
    puzzles = published_puzzles()[split]
    content = "".join(puzzle_line(puzzle, index=i, split=split) for i, puzzle in enumerate(puzzles)).encode()
    assert len(content) == size
    assert hashlib.sha256(content).hexdigest() == digest


def test_every_published_puzzle_has_one_solution_and_no_grid_is_in_both_splits():
    splits = published_puzzles()
    for puzzle in splits["train"] + splits["eval"]:
        assert is_solution(puzzle.solution)
        assert solutions(puzzle.givens) == [puzzle.solution]
    assert not {p.solution for p in splits["train"]} & {p.solution for p in splits["eval"]}


@pytest.mark.parametrize(
    ("mask", "count"), [(5, 32), (10, 32), (15, 32), (20, 32), ([5, 10], 64), ([5, 10, 15, 20], 128)]
)
@pytest.mark.parametrize("split", ["train", "eval"])
def test_the_environment_plays_them_by_mask(mask, count, split):
    env = Sudoku(source="published", size=9, mask=mask)
    tasks = env.tasks(split)
    assert len(tasks) == len({task.id for task in tasks}) == count
    assert {task.data.mask for task in tasks} == ({mask} if isinstance(mask, int) else set(mask))
    assert all(task.data in published_puzzles()[split] for task in tasks)


def test_counts_cut_the_published_tasks():
    env = Sudoku(source="published", size=9, mask=5, train_tasks=3, eval_tasks=2)
    assert [task.id for task in env.tasks("train")] == [f"sudoku-9x9-mask5-train-00000{i}" for i in range(3)]
    assert len(env.tasks("eval")) == 2
