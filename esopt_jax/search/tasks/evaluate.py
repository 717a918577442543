"""A program's score on instances of a task: run where it can do no harm, checked and scored here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError, Task


class Sandbox(Protocol):
    """Runs strangers' code."""

    def run(self, code: str, runner: str, inputs: Arrays) -> object:
        """What `run(program, inputs)` of the runner gave: something with `outputs`, or with the `reason` it failed."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """What a program is worth.

    Attributes:
        objective: Mean over the instances; None for an invalid program.
        valid: Whether there is an objective.
        reason: Why not, else None.
        instances: Behind the mean.
        seconds: Wall time, of running and of scoring.
    """

    objective: float | None
    valid: bool
    reason: str | None
    instances: int
    seconds: float


def evaluate(task: Task, code: str, inputs: Arrays, sandbox: Sandbox) -> Evaluation:
    """Score a program. The same code gets the same objective, unless it asks the system or the clock.

    Args:
        task: Whose function the code defines.
        code: Python source.
        inputs: From `task.instances` or `task.inputs`.
        sandbox: Where the code runs.
    """
    start = time.perf_counter()
    values = []
    for part in _parts(task, inputs):
        answer = sandbox.run(code, task.runner, part)
        outputs: Arrays | None = getattr(answer, "outputs", None)
        if outputs is None:
            return _invalid(str(getattr(answer, "reason", "no outputs")), start)
        try:
            values.append(task.objectives(part, outputs))
        except InvalidSolutionError as fault:
            return _invalid(str(fault), start)
    objectives = np.concatenate(values)
    if not objectives.size:
        return _invalid("it failed on every instance", start)
    if not np.isfinite(objectives).all():
        return _invalid(f"an objective of {objectives[~np.isfinite(objectives)][0]}", start)
    return Evaluation(float(objectives.mean()), True, None, len(objectives), time.perf_counter() - start)


def _invalid(reason: str, start: float) -> Evaluation:
    return Evaluation(None, False, reason, 0, time.perf_counter() - start)


def _parts(task: Task, inputs: Arrays) -> Iterator[Arrays]:
    """The inputs of every run: rows of the instances that fit into it, and what has no rows."""
    total, size = len(inputs["seeds"]), task.per_run(inputs)
    for start in range(0, total, size):
        rows = slice(start, start + size)
        yield {name: array[rows] if array.ndim else array for name, array in inputs.items()}
