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
        instances: `(split, size) -> inputs`: the arrays handed to the runner.
        runner: NumPy-only source that defines `run(program, inputs) -> dict of arrays`; it runs beside the program.
        objectives: `(inputs, outputs) -> [instances]` float64: checks every solution, then computes its objective.
    """

    name: str
    signature: str
    description: str
    direction: Literal["min", "max"]
    instances: Callable[[Split, int], Arrays]
    runner: str
    objectives: Callable[[Arrays, Arrays], np.ndarray]
