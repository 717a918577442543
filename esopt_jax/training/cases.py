"""Which tasks are played: training cases of a generation, held-out tasks of an evaluation."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import jax
import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.types import Purpose, Task

log = logging.getLogger(__name__)


def permutation(seed: int, n: int, *, purpose: int = Purpose.CASES, index: int = 0) -> np.ndarray:
    """Seeded order of `n` things: `[n]` int64, the same on every platform.

    Stable argsort of threefry words, whose bits are portable, keyed (seed, purpose, index).

    Example:
        >>> sorted(permutation(0, 5).tolist())
        [0, 1, 2, 3, 4]
    """
    key = jax.random.key(seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, purpose), index)
    return np.argsort(np.asarray(jax.random.bits(key, (n,))), kind="stable")


def training_cases(seed: int, generation: int, *, n_tasks: int, cases: int) -> np.ndarray:
    """Tasks that every member plays in `generation`: `[cases]` indices, no task twice; `cases` is `n_tasks` at most.

    An epoch is one seeded permutation, cut into `n_tasks // cases` generations; the remainder sits out until the next
    permutation, so that a generation never straddles two and meets a task twice.
    """
    epoch, position = divmod(generation, n_tasks // cases)
    return permutation(seed, n_tasks, index=epoch)[position * cases : (position + 1) * cases]


def held_out_tasks(seed: int, *, n_tasks: int, episodes: int) -> np.ndarray:
    """Tasks of every evaluation under `eval.seed`, whatever the run: `[episodes]` indices, no task twice."""
    return permutation(seed, n_tasks)[:episodes]


def available(wanted: int, key: str, tasks: Sequence[Task], split: str) -> int:
    """`wanted`, or all the tasks of a split that has fewer, which is logged.

    Raises:
        EsoptError: the split is empty.
    """
    if not tasks:
        raise EsoptError(f"the environment has no {split!r} tasks; its tasks({split!r}) must return at least one")
    if len(tasks) < wanted:
        log.warning(
            "%s is %d, but the environment has %d %r tasks: playing all of these", key, wanted, len(tasks), split
        )
    return min(wanted, len(tasks))
