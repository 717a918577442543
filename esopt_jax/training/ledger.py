"""Where a run writes, and what its summary will say so far: of a new run, or of one that goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from esopt_jax.config import Config
from esopt_jax.training.compile_clock import CompileClock, compile_clock
from esopt_jax.training.evaluations import EvaluationLog, Scored
from esopt_jax.training.history import HistoryWriter
from esopt_jax.training.jsonl import JsonlWriter, write_json
from esopt_jax.training.moments import At, Moment
from esopt_jax.training.monitors import monitor
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.scoring import Evaluation
from esopt_jax.training.signals import StopRequest
from esopt_jax.training.summary import Totals, summarize

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Earlier:
    """What the files of a run hold already; nothing, of a new one.

    Attributes:
        history, metrics, evaluations: bytes of complete lines, or None where there is no file yet.
        scores: rows of `evaluations.jsonl`, read and checked.
        evaluated: numbers of updates whose evaluation has its row of metrics.
        drifted: those whose drift has one.
    """

    history: int | None = None
    metrics: int | None = None
    evaluations: int | None = None
    scores: Mapping[Scored, tuple[Evaluation, float]] = field(default_factory=dict)
    evaluated: frozenset[int] = frozenset()
    drifted: frozenset[int] = frozenset()


@dataclass
class Ledger:
    """The open files of a run and its running totals: kept up to date, since a run may stop anywhere.

    Attributes:
        config: resolved config.
        folder: where everything is.
        history: the write-ahead history.
        metrics: one row a generation and one an evaluation.
        evaluations: every held-out score.
        clock: seconds spent compiling by this process.
        totals: what the run has done, earlier processes included.
        fingerprint: of the platform.
        started: `time.perf_counter()` at which this process began.
        evaluated: numbers of updates whose evaluation has its row of metrics.
        drifted: those whose drift has one.
        monitor: is told every row of metrics.
        stop: whether a signal has come.
        passing: is told every moment.
        held: raises if the folder's lock was taken away.
        probes: what the drift of answers is measured on, once that is known (`drift`).
    """

    config: Config
    folder: RunFolder
    history: HistoryWriter
    metrics: JsonlWriter
    evaluations: EvaluationLog
    clock: CompileClock
    totals: Totals
    fingerprint: str
    started: float
    evaluated: set[int]
    drifted: set[int]
    monitor: Callable[[Mapping[str, Any]], None]
    stop: StopRequest
    passing: At
    held: Callable[[], None]
    probes: Any = None

    def at(self, moment: Moment) -> None:
        """Say where the run is; stops it if a signal asked for that, or its lock is gone."""
        self.stop.check()
        self.held()
        self.passing(moment)

    def wall_s(self) -> float:
        """Seconds that the run has been going, over all its processes."""
        return self.totals.earlier_wall_s + time.perf_counter() - self.started

    def write_metrics(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Put a row on the disk, with `wall_s`."""
        row = {**row, "wall_s": self.wall_s()}
        self.metrics.write(row)
        self.monitor(row)
        return row

    def write_summary(self, status: str, stopped_because: str | None = None) -> dict[str, Any]:
        """Replace `summary.json` by what there is now."""
        summary = summarize(
            self.config,
            self.totals,
            self.evaluations,
            status=status,
            stopped_because=stopped_because,
            fingerprint=self.fingerprint,
            wall_s=self.wall_s(),
            compile_s=self.totals.earlier_compile_s + self.clock.seconds,
        )
        write_json(self.folder.summary, summary)
        return summary


@contextmanager
def open_ledger(
    config: Config,
    folder: RunFolder,
    *,
    totals: Totals,
    fingerprint: str,
    started: float,
    stop: StopRequest,
    at: At,
    held: Callable[[], None],
    earlier: Earlier | None = None,
) -> Iterator[Ledger]:
    """The ledger of a run, its files open within the block; `earlier` ones are cut off after their complete lines."""
    earlier = Earlier() if earlier is None else earlier
    with (
        compile_clock() as clock,
        HistoryWriter(folder.history, keep=earlier.history, at=at) as history,
        JsonlWriter(folder.metrics, keep=earlier.metrics) as metrics,
        EvaluationLog(folder.evaluations, keep=earlier.evaluations, found=earlier.scores) as evaluations,
        monitor(config, folder.path) as send,
    ):
        yield Ledger(
            config=config,
            folder=folder,
            history=history,
            metrics=metrics,
            evaluations=evaluations,
            clock=clock,
            totals=totals,
            fingerprint=fingerprint,
            started=started,
            evaluated=set(earlier.evaluated),
            drifted=set(earlier.drifted),
            monitor=send,
            stop=stop,
            passing=at,
            held=held,
        )
