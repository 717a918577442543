"""Scores programs for a task: each runs in a sandbox, and what comes out of it is checked here."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from esopt_jax.search.program import Direction
from esopt_jax.search.scorer import Score
from esopt_jax.search.tasks.task import InvalidSolutionError, Task


class Sandbox(Protocol):
    """What scoring needs of `tools.sandbox.Sandbox`."""

    def run(self, code: str, runner: str, inputs: Mapping[str, np.ndarray]) -> Any:
        """Something with the `outputs` of the runner, or with the `reason` why there are none."""
        ...


class TaskScorer:
    """A `scorer.Scorer`; it scores as many programs at once as it has sandboxes."""

    def __init__(self, task: Task, inputs: Mapping[str, np.ndarray], sandboxes: Sequence[Sandbox]) -> None:
        """Score on these inputs, in these sandboxes, which somebody else opens and closes."""
        self._task, self._inputs, self._sandboxes = task, inputs, sandboxes

    @property
    def direction(self) -> Direction:
        """The task's."""
        return self._task.direction

    def score(self, codes: Sequence[str]) -> Iterator[Score]:
        """One score each, in their order, each as soon as it and those before it are known."""
        if len(self._sandboxes) == 1:
            yield from (score_program(self._task, self._inputs, self._sandboxes[0], code) for code in codes)
            return
        free: SimpleQueue[Sandbox] = SimpleQueue()
        for sandbox in self._sandboxes:
            free.put(sandbox)

        def one(code: str) -> Score:
            sandbox = free.get()
            try:
                return score_program(self._task, self._inputs, sandbox, code)
            finally:
                free.put(sandbox)

        pool = ThreadPoolExecutor(len(self._sandboxes), "esopt-score")
        try:
            yield from pool.map(one, codes)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def score_program(task: Task, inputs: Mapping[str, np.ndarray], sandbox: Sandbox, code: str) -> Score:
    """The mean objective of a program over all instances; it is invalid if one of them is.

    Args:
        task: what it is for.
        inputs: of the runner.
        sandbox: where it runs.
        code: its source.
    """
    started = time.perf_counter()

    def score(objective: float | None, reason: str = "") -> Score:
        return Score(objective, reason, time.perf_counter() - started)

    ran = sandbox.run(code, task.runner, inputs)
    outputs = getattr(ran, "outputs", None)
    if outputs is None:
        return score(None, str(ran.reason) or "no reason was given")
    try:
        objective = float(np.mean(task.objectives(inputs, outputs)))
    except InvalidSolutionError as fault:
        return score(None, str(fault))
    if not math.isfinite(objective):
        return score(None, f"the objective is {objective}")
    return score(objective)
