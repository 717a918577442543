"""Replay: the weights that follow from base weights and records of generations, by the update that training uses.

A record holds the shaped coefficients themselves, so that nothing here looks at fitness. Training applies every
generation through `apply_record`, and so do resume and replay: equal platforms give equal bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from esopt_jax.core.update import Update, UpdateStats
from esopt_jax.types import Master


@dataclass(frozen=True)
class Record:
    """One generation, as far as the weights depend on it, and what is told about it.

    Attributes:
        generation: counted from 0.
        sigma: perturbation scale.
        alpha: step size, whether or not there was an update.
        fitness: `[P]` float32 as earned.
        weights: `[P]` float32 coefficients of the update; all 0 when it was skipped.
        excluded: columns of episodes that were dropped for all members because of faults.
        cases: `[C]` indices of the training tasks played.
    """

    generation: int
    sigma: float
    alpha: float
    fitness: np.ndarray
    weights: np.ndarray
    excluded: tuple[int, ...]
    cases: tuple[int, ...]


def apply_record(record: Record, master: Master, *, seed: int, update: Update) -> tuple[Master, UpdateStats | None]:
    """The weights after one generation, and what the update did: None where it was skipped.

    Args:
        record: the generation.
        master: weights before it; donated, so use the returned ones.
        seed: of the run.
        update: as `make_update` built it for the run.
    """
    if not record.weights.any():
        return master, None  # every bit stays
    return update(seed, record.generation, master, record.weights, record.alpha)


def replay(
    records: Iterable[Record], master: Master, *, seed: int, update: Update
) -> Iterator[tuple[Record, Master, UpdateStats | None]]:
    """Apply one record after another; after each, it, the weights so far and what its update did.

    The weights of a step are donated to the next one: keep none of them but the last.
    """
    for record in records:
        master, stats = apply_record(record, master, seed=seed, update=update)
        yield record, master, stats
