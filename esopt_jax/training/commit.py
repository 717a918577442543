"""Apply a generation so that its history is never behind the weights: write it down, update, write the digest down.

Order of what reaches the disk: the metrics of the rollouts (`pending.json`), the generation's row, the digest after its
update, its row of metrics. Whatever is missing at the end can be told from what is there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from esopt_jax.core.digest import digest
from esopt_jax.core.replay import Record, apply_record
from esopt_jax.core.update import Update
from esopt_jax.training.history import HistoryWriter, applied_row
from esopt_jax.training.jsonl import write_json
from esopt_jax.training.metrics import update_metrics
from esopt_jax.training.moments import At, Moment
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.types import Master


@dataclass(frozen=True)
class Commit:
    """An applied generation: digest of the new weights, and what its update adds to the generation's metrics."""

    digest: str
    metrics: dict[str, Any]


def write_down(record: Record, played: Mapping[str, Any], *, folder: RunFolder, history: HistoryWriter, at: At) -> None:
    """Put a generation on the disk before its update, the metrics of its rollouts first."""
    write_json(folder.pending, played)
    at(Moment.BEFORE_ROW)
    history.write_generation(record)
    at(Moment.AFTER_ROW)


def apply(record: Record, master: Master, *, seed: int, update: Update, at: At) -> tuple[Master, Commit]:
    """The weights after a generation, computed to the end. `master` is donated to the update."""
    started = time.perf_counter()
    master, stats = apply_record(record, master, seed=seed, update=update)
    at(Moment.UPDATE)
    stats = None if stats is None else jax.device_get(stats)
    mark = digest(master)
    at(Moment.BEFORE_APPLIED)
    return master, Commit(mark, update_metrics(stats, update_s=time.perf_counter() - started))


def confirm(record: Record, done: Commit, *, history: HistoryWriter, at: At) -> None:
    """Put the digest of an applied generation on the disk."""
    history.write(applied_row(record.generation, done.digest))
    at(Moment.AFTER_APPLIED)
