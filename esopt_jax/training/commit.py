"""Apply a generation so that its history is never behind the weights: write it down, update, write the digest down."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax

from esopt_jax.core.digest import digest
from esopt_jax.core.update import Update, UpdateStats
from esopt_jax.training.generation import Generation
from esopt_jax.training.history import HistoryWriter, applied_row, generation_row
from esopt_jax.types import Master


@dataclass(frozen=True)
class Commit:
    """An applied generation: digest of the new weights, what the update did (None if skipped), and its seconds."""

    digest: str
    stats: UpdateStats | None
    update_s: float


def commit(
    generation: Generation, master: Master, *, seed: int, update: Update, history: HistoryWriter
) -> tuple[Master, Commit]:
    """The weights after `generation`, with both of its rows on the disk.

    A skipped generation has coefficients that are all 0, by which a reader knows it; its weights keep every bit.

    Args:
        generation: what the population did.
        master: donated to the update; use the returned one.
        seed: of the run.
        update: as `make_update` built it.
        history: gets the generation before the update and the digest after it.
    """
    history.write(
        generation_row(
            generation.index,
            sigma=generation.sigma,
            alpha=generation.alpha,
            fitness=generation.fitness,
            weights=generation.weights,
            excluded=generation.dropped,
            cases=generation.cases,
        )
    )
    started = time.perf_counter()
    stats: Any = None
    if generation.skipped is None:
        master, stats = update(seed, generation.index, master, generation.weights, generation.alpha)
        stats = jax.device_get(stats)
    mark = digest(master)
    history.write(applied_row(generation.index, mark))
    return master, Commit(digest=mark, stats=stats, update_s=time.perf_counter() - started)
