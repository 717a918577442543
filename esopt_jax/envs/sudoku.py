"""Multi-turn Sudoku: one cell a turn, one binary reward at the end.

The rules of an episode are those of the published experiments: a wrong digit is accepted silently and can never be
undone, a rejected action leaves the board alone but costs a turn, and the episode ends when the board is full or the
turns are over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from esopt_jax.envs.sudoku_action import Feedback, judge
from esopt_jax.envs.sudoku_grids import BLANK, BOX, is_solution
from esopt_jax.envs.sudoku_prompts import PROMPTS
from esopt_jax.envs.sudoku_published import MASKS, SIZE, published_puzzles
from esopt_jax.envs.sudoku_puzzles import MAX_MASK, Puzzle, generate_puzzles
from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.types import Observation, Step, Task

SPLITS = ("train", "eval")
SOURCES = ("generated", "published")


class Episode(NamedTuple):
    """The state: `board` is what the agent sees now, `turn` counts the actions so far."""

    puzzle: Puzzle
    board: str
    turn: int


@dataclass(frozen=True)
class Sudoku:
    """The environment.

    Attributes:
        prompt: `published` or `compact`, see `sudoku_prompts`.
        size: 4 or 9.
        mask: number of blanks, or a list of them that the tasks cycle through.
        max_turns: turns of an episode; 0 means three per blank.
        source: `generated`, or `published` for the published 9x9 puzzles with the given `mask`.
        train_tasks: number of training tasks; fewer where there are fewer different puzzles (4x4 with mask 1 or 12, the
            published ones).
        eval_tasks: the same for held-out tasks.
        seed: of the generated puzzles.
        invalid_penalty: off at 0; subtracted from the reward of every rejected action.
        progress_reward: off at 0; this much is shared out over the blanks, each share paid when its right digit is
            placed. Below 1: the last reward of an unsolved board then stays below 1, that of a solved one is at least
            1, so that neither variant can make or break a success.

    Raises:
        EsoptError: a value that is not allowed.
    """

    prompt: str = "published"
    size: int = 4
    mask: int | Sequence[int] = 6
    max_turns: int = 0
    source: str = "generated"
    train_tasks: int = 4096
    eval_tasks: int = 1024
    seed: int = 0
    invalid_penalty: float = 0.0
    progress_reward: float = 0.0

    success_at = 1.0

    def __post_init__(self) -> None:
        for name, allowed in (("prompt", tuple(PROMPTS)), ("source", SOURCES)):
            value = getattr(self, name)
            if value not in allowed:
                raise EsoptError(f"{name} is {value!r}; {did_you_mean(str(value), allowed)}")
        if not _is_whole(self.size) or self.size not in BOX:
            raise EsoptError(f"size is {self.size!r}; it must be 4 or 9")
        for name, least in (("max_turns", 0), ("train_tasks", 1), ("eval_tasks", 1), ("seed", 0)):
            value = getattr(self, name)
            if not _is_whole(value) or value < least:
                raise EsoptError(f"{name} is {value!r}; it must be a whole number, {least} or more")
        for name, below in (("invalid_penalty", math.inf), ("progress_reward", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < below:
                raise EsoptError(f"{name} is {value!r}; it must be a number, 0 (off) or more and below {below:g}")
        self._check_masks()

    def _check_masks(self) -> None:
        if self.source == "published" and self.size != SIZE:
            raise EsoptError(f"size is {self.size}; the published puzzles are 9x9, so set size to 9")
        allowed = MASKS if self.source == "published" else range(1, MAX_MASK[self.size] + 1)
        masks = self.masks
        if not masks or not all(_is_whole(mask) and mask in allowed for mask in masks):
            span = "5, 10, 15, 20" if self.source == "published" else f"1 .. {MAX_MASK[self.size]}"
            kind = f"{self.source} {self.size}x{self.size} puzzles"
            raise EsoptError(f"mask is {self.mask!r}; for {kind} it must be in {span}, or a list of such")

    @property
    def masks(self) -> tuple[int, ...]:
        """The mask counts that the tasks cycle through."""
        listed = isinstance(self.mask, Sequence) and not isinstance(self.mask, str)
        return tuple(self.mask) if listed else (self.mask,)  # type: ignore[arg-type, return-value]

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of `train` or `eval`; no solution grid is in both."""
        if split not in SPLITS:
            raise EsoptError(f"split is {split!r}; {did_you_mean(split, SPLITS)}")
        return self._train if split == "train" else self._eval

    @cached_property
    def _train(self) -> tuple[Task, ...]:
        return self._make_tasks("train", self.train_tasks)

    @cached_property
    def _eval(self) -> tuple[Task, ...]:
        return self._make_tasks("eval", self.eval_tasks)

    def _make_tasks(self, split: Any, count: int) -> tuple[Task, ...]:
        if self.source == "published":
            puzzles = tuple(puzzle for puzzle in published_puzzles()[split] if puzzle.mask in self.masks)[:count]
        else:
            puzzles = generate_puzzles(self.size, self.masks, split, count, self.seed)
        return tuple(Task(f"sudoku-{p.size}x{p.size}-mask{p.mask}-{split}-{i:06d}", p) for i, p in enumerate(puzzles))

    def reset(self, task: Task, seed: int) -> tuple[Episode, Observation]:
        """Start an episode. Nothing in it is random: `seed` is not used."""
        state = Episode(task.data, task.data.givens, 0)
        return state, self._observe(state, None)

    def step(self, state: Episode, action: str) -> Step:
        """Apply the agent's text. `info`: `invalid`, `verdict` on the action, `solved`."""
        puzzle, board, turn = state
        feedback = judge(action, board, givens=puzzle.givens, size=puzzle.size)
        placed = feedback.verdict == "placed"
        if placed:
            board = board[: feedback.cell] + feedback.digit + board[feedback.cell + 1 :]
        state = Episode(puzzle, board, turn + 1)
        full = BLANK not in board
        solved = full and is_success(puzzle.givens, board)
        done = full or state.turn >= (self.max_turns or 3 * puzzle.mask)
        info: Mapping[str, Any] = {"invalid": not placed, "verdict": feedback.verdict, "solved": solved}
        reward = float(solved) + self._shaping(puzzle, feedback)
        return Step(state, None if done else self._observe(state, feedback), reward, done, info)

    def _shaping(self, puzzle: Puzzle, feedback: Feedback) -> float:
        if feedback.verdict != "placed":
            return -self.invalid_penalty
        right = puzzle.solution[feedback.cell] == feedback.digit
        return self.progress_reward / puzzle.mask if right else 0.0

    def _observe(self, state: Episode, feedback: Feedback | None) -> Observation:
        text = PROMPTS[self.prompt](state.puzzle, state.board, state.turn, feedback)
        return Observation(({"role": "user", "content": text},))


def is_success(givens: str, board: str) -> bool:
    """Whether `board` keeps every given and solves the Sudoku; the stored solution is not consulted."""
    kept = all(given in (BLANK, cell) for given, cell in zip(givens, board, strict=True))
    return kept and is_solution(board)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
