"""Scores programs for a task: each runs in a sandbox, and what comes out of it is checked here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from esopt_jax.search.program import Direction
from esopt_jax.search.scorer import Score
from esopt_jax.search.tasks.evaluate import Sandbox, evaluate
from esopt_jax.search.tasks.task import Arrays, Task


class TaskScorer:
    """A `scorer.Scorer`; it scores as many programs at once as it has sandboxes."""

    def __init__(self, task: Task, inputs: Arrays, sandboxes: Sequence[Sandbox]) -> None:
        """Score on these inputs, in these sandboxes, which somebody else opens and closes."""
        self._task, self._inputs, self._sandboxes = task, inputs, sandboxes

    @property
    def direction(self) -> Direction:
        """The task's."""
        return self._task.direction

    def score(self, codes: Sequence[str]) -> Iterator[Score]:
        """One score each, in their order, each as soon as it and those before it are known."""
        if len(self._sandboxes) == 1:
            yield from (self._one(code, self._sandboxes[0]) for code in codes)
            return
        free: SimpleQueue[Sandbox] = SimpleQueue()
        for sandbox in self._sandboxes:
            free.put(sandbox)

        def one(code: str) -> Score:
            sandbox = free.get()
            try:
                return self._one(code, sandbox)
            finally:
                free.put(sandbox)

        pool = ThreadPoolExecutor(len(self._sandboxes), "esopt-score")
        try:
            yield from pool.map(one, codes)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for a program

    def _one(self, code: str, sandbox: Sandbox) -> Score:
        evaluation = evaluate(self._task, code, self._inputs, sandbox)
        return Score(evaluation.objective, evaluation.reason or "", evaluation.seconds)
