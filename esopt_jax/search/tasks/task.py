"""What a task is: a function to be written, instances, code that runs it, and a scorer that trusts no result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from esopt_jax.errors import EsoptError

Split = Literal["train", "val", "test"]
Arrays = Mapping[str, np.ndarray]


class InvalidSolutionError(EsoptError):
    """A program returned something that is no solution of the instance; the message is the reason."""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: What a user calls it.
        signature: The first line of the function to be written.
        description: What the function must do, for the prompt.
        direction: Whether a smaller or a larger objective is better.
        sizes: The published sizes of each split; the first one is the default.
        draw: `(split, size) -> array` of instances, as it would lie in a file.
        inputs: `array -> inputs` of the runner, for an array from `draw` or from a file; an `EsoptError` if it holds
            no instances of the task. Arrays of one dimension or more have a row for every instance; `seeds` is one.
        runner: NumPy-only source that defines `run(program, inputs) -> dict of arrays`; it runs beside the program.
        objectives: `(inputs, outputs) -> [instances]` float64: checks every solution, then computes its objective.
            An `InvalidSolutionError` says what is wrong.
        per_run: `inputs -> instances` that fit into one run, where answers are large; all of them by default.
    """

    name: str
    signature: str
    description: str
    direction: Literal["min", "max"]
    sizes: Mapping[Split, tuple[int, ...]]
    draw: Callable[[Split, int], np.ndarray]
    inputs: Callable[[np.ndarray], Arrays]
    runner: str
    objectives: Callable[[Arrays, Arrays], np.ndarray]
    per_run: Callable[[Arrays], int] = lambda inputs: len(inputs["seeds"])

    def instances(self, split: Split, size: int | None = None) -> Arrays:
        """The inputs of the runner for a split, at its default size or another."""
        return self.inputs(self.draw(split, self.sizes[split][0] if size is None else size))
