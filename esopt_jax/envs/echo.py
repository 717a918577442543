"""A toy whose conversation grows: the agent must remember what it read one turn earlier.

Each turn the environment says a digit and the agent answers with the digit of the turn before (`0` in the first turn).
An engine that loses or mixes up the state it carries between turns cannot pass.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from esopt_jax.errors import EsoptError
from esopt_jax.types import Observation, Step, Task


@dataclass(frozen=True)
class Echo:
    """`turns` digits an episode, `count` tasks a split; reward 1 at the end if every answer was right.

    Raises:
        EsoptError: `turns` or `count` is not a whole number of at least 1.
    """

    turns: int = 4
    count: int = 64

    def __post_init__(self) -> None:
        for name in ("turns", "count"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise EsoptError(f"{name} is {value!r}; it must be a whole number, 1 or more")

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks differ only in their digits."""
        return [Task(f"echo-{split}-{i:03d}") for i in range(self.count)]

    def reset(self, task: Task, seed: int) -> tuple[tuple[str, int, bool], Observation]:
        """The digits follow from the task and `seed`. The state: digits, turn, whether all was right so far."""
        digits = "".join(random.Random(f"{task.id}/{seed}").choices("0123456789", k=self.turns))
        return (digits, 0, True), _say(digits[0])

    def step(self, state: tuple[str, int, bool], action: str) -> Step:
        """Compare the answer with the digit of the turn before."""
        digits, turn, right = state
        answer = action.rpartition("</think>")[2].strip()
        right = right and answer == ("0" + digits)[turn]
        turn, done = turn + 1, turn + 1 == self.turns
        info = {"invalid": len(answer) != 1 or answer not in "0123456789"}
        return Step((digits, turn, right), None if done else _say(digits[turn]), float(done and right), done, info)


def _say(digit: str) -> Observation:
    return Observation(({"role": "user", "content": digit},), mode="append")
