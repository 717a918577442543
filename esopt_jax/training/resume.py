"""Go on with a run that a process left, wherever it stopped, as if it never had.

Nothing is changed before everything has been checked: config, history, base model, weights. Then partial last lines
are cut off, what the last generation still lacks is added, and the loop goes on.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esopt_jax.config import INCIDENTAL, Config, config_hash, to_dict, to_yaml
from esopt_jax.config_reader import load_config
from esopt_jax.core.digest import digest
from esopt_jax.core.fingerprint import fingerprint
from esopt_jax.errors import EsoptError
from esopt_jax.training.commit import Commit, confirm
from esopt_jax.training.compile_clock import compile_clock
from esopt_jax.training.evaluations import EvaluationLog
from esopt_jax.training.generation import scheduled
from esopt_jax.training.history import HistoryWriter, header_row, resumed_row
from esopt_jax.training.history_reader import History, new_history, read_history
from esopt_jax.training.jsonl import JsonlWriter, Lines, read_json, read_lines, write_json, write_text
from esopt_jax.training.ledger import Ledger
from esopt_jax.training.lock import run_lock
from esopt_jax.training.loop import run_to_the_end
from esopt_jax.training.metrics import memory_metrics, record_metrics, update_metrics
from esopt_jax.training.moments import At, pass_by
from esopt_jax.training.monitors import check_monitor, monitor
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.platform_record import platform_record
from esopt_jax.training.restore import Restored, base_master, restore
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder, open_run_folder
from esopt_jax.training.session import load_parts, open_session
from esopt_jax.training.stopping import stop_signals
from esopt_jax.training.summary import Totals

log = logging.getLogger(__name__)


def resume(
    run_dir: str | Path, overrides: Sequence[str] = (), *, started: float | None = None, at: At = pass_by
) -> Run:
    """Go on with the run in `run_dir`, under its own config.

    Args:
        run_dir: the folder of a run that did not finish; or of one that did, to be extended.
        overrides: `section.key=value`, for what does not change the results so far: the keys of `config.INCIDENTAL`,
            `model.path` if the base has moved, and `es.generations` where the schedules of sigma and alpha stay.
        started: `time.perf_counter()` at which the command began; by default now.
        at: is told where the run is (`moments`).

    Raises:
        EsoptError: there is no such run, it is finished, something in the folder is damaged, or it contradicts what is
            asked for; the folder is as it was.
        StoppedError: as `train`.

    Example:
        >>> import tempfile
        >>> from esopt_jax.training.loop import train
        >>> keep = ["es.sigma_schedule=constant", "eval.episodes=4", "log.progress=none"]
        >>> run = train(load_config("smoke", [*keep, "es.generations=1"]), tempfile.mkdtemp())
        >>> resume(run.folder, ["es.generations=2"]).summary["generations"]
        2
    """
    started = time.perf_counter() if started is None else started
    folder = open_run_folder(Path(run_dir))
    with stop_signals() as stop, run_lock(folder.lock):
        metrics, scores = _lines(folder.metrics), _lines(folder.evaluations)
        history = _history(folder, metrics)
        config = _agreed_config(folder, history, overrides)
        check_monitor(config)
        use_numerics(config)
        environment, model = load_parts(config)
        mark, header = fingerprint(), None
        if history is None:
            base = digest(base_master(model, config.es))
            header = header_row(config, base_digest=base, fingerprint=mark)
            history = new_history(header)
        restored = restore(
            history,
            model,
            updates=len(history.records),
            fingerprint=mark,
            mesh=config.train.mesh,
            checkpoints=folder.checkpoints,
        )
        log.info("%s: %s", folder.path, _describe(restored))
        model = dataclasses.replace(model, params={})
        with (
            compile_clock() as clock,
            open_session(config, environment, model) as session,
            HistoryWriter(folder.history, keep=_size(folder.history, history.size), at=at) as rows,
            JsonlWriter(folder.metrics, keep=_size(folder.metrics, metrics.size)) as metric_rows,
            EvaluationLog(
                folder.evaluations, keep=_size(folder.evaluations, scores.size), rows=scores.rows
            ) as evaluations,
            monitor(config, folder.path) as send,
        ):
            ledger = Ledger(
                config=config,
                folder=folder,
                history=rows,
                metrics=metric_rows,
                evaluations=evaluations,
                clock=clock,
                totals=_earlier(folder, history, metrics.rows),
                fingerprint=mark,
                started=started,
                evaluated={row["generation"] for row in metrics.rows if "eval/solve_rate" in row},
                monitor=send,
                stop=stop,
                passing=at,
            )
            if header is not None:
                rows.write(header)
            _note_changes(ledger, history)
            _catch_up(ledger, history, restored, metrics.rows)
            return run_to_the_end(session, restored.master, ledger, updates=restored.updates)


# --- what is there ----------------------------------------------------------------------------------------------------


def _lines(path: Path) -> Lines:
    return read_lines(path) if path.exists() else Lines([], 0, False)


def _size(path: Path, size: int) -> int | None:
    return size if path.exists() else None


def _history(folder: RunFolder, metrics: Lines) -> History | None:
    """The history, or None of a run that stopped before its first row was whole."""
    history = read_history(folder.history) if folder.history.exists() else None
    if history is None and metrics.rows:
        raise EsoptError(f"{folder.history} is missing or empty, though {folder.metrics} is not; put it back")
    if history is not None and history.partial:
        log.warning("%s: the last line was cut short; its generation is played again", folder.history)
    return history


def _agreed_config(folder: RunFolder, history: History | None, overrides: Sequence[str]) -> Config:
    """The config to go on with."""
    kept, asked = load_config(folder.config), load_config(folder.config, overrides)
    free = (*INCIDENTAL, "model.path", "es.generations")
    for key, before, after in _differences(to_dict(kept), to_dict(asked)):
        if not any(key == name or key.startswith(name + ".") for name in free):
            raise EsoptError(
                f"--set {key}={after} contradicts the run in {str(folder.path)!r}, which has {before!r}; leave it out, "
                "or start a new run"
            )
    if history is not None:
        _check_history(folder, history, kept, asked)
    if asked.es.generations == kept.es.generations and _status(folder) == "finished":
        raise EsoptError(
            f"the run in {str(folder.path)!r} is finished after {kept.es.generations} generations; to extend it give "
            "--set es.generations=N, which the schedules of sigma and alpha must allow"
        )
    return asked


def _check_history(folder: RunFolder, history: History, kept: Config, asked: Config) -> None:
    if config_hash(kept) not in history.config_hashes:
        ours, theirs = ({"es": vars(es)} for es in (kept.es, history.header.es))
        keys = [key for key, _, _ in _differences(ours, theirs)] or ["a key outside es"]
        raise EsoptError(f"{folder.config} was changed after the run began ({', '.join(keys)}); put it back")
    done = len(history.records)
    if asked.es.generations < done:
        raise EsoptError(f"es.generations is {asked.es.generations}; the run has {done} already: give at least that")
    for name in ("sigma", "alpha"):
        for generation in range(done):
            before, after = (scheduled(config.es, name, generation) for config in (kept, asked))
            if before != after:
                raise EsoptError(
                    f"es.generations={asked.es.generations} would have given generation {generation} the {name} "
                    f"{after:.6g} instead of {before:.6g}: a {kept.es.generations}-generation schedule cannot be "
                    "extended; start a new run"
                )


def _differences(before: Any, after: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """Keys at which two nested mappings differ, with both values."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return [] if before == after else [(where, before, after)]
    return [
        found
        for key in sorted(before.keys() | after.keys())
        for found in _differences(before.get(key), after.get(key), f"{where}.{key}".lstrip("."))
    ]


def _status(folder: RunFolder) -> str | None:
    return read_json(folder.summary).get("status") if folder.summary.exists() else None


def _describe(restored: Restored) -> str:
    replayed = restored.updates - restored.start
    origin = f"the checkpoint of {restored.start}" if restored.start else "the base model"
    note = "" if restored.exact else "; computed on another platform, so equal to tolerance only"
    return f"going on after {restored.updates} updates, from {origin} with {replayed} replayed{note}"


def _earlier(folder: RunFolder, history: History, rows: Sequence[Mapping[str, Any]]) -> Totals:
    """What the processes before this one did, by their rows of metrics."""
    totals = Totals(history.header.base_digest)
    for row in rows:
        if "fitness/mean" in row:
            totals = totals.after(row, history.digests[row["generation"]])
    summary = read_json(folder.summary) if folder.summary.exists() else {}
    return dataclasses.replace(
        totals,
        earlier_wall_s=max(summary.get("wall_s", 0.0), rows[-1]["wall_s"] if rows else 0.0),
        earlier_compile_s=max(summary.get("compile_s", 0.0), sum(row.get("time/compile_s", 0.0) for row in rows)),
        earlier_abandoned=totals.abandoned_workers,
    )


# --- what is missing --------------------------------------------------------------------------------------------------


def _note_changes(ledger: Ledger, history: History) -> None:
    """Write down whatever is different from here on: platform, config, versions and devices."""
    folder, config = ledger.folder, ledger.config
    if ledger.fingerprint != history.fingerprint or config_hash(config) != history.config_hashes[-1]:
        ledger.history.write(resumed_row(config, fingerprint=ledger.fingerprint))
    write_text(folder.config, to_yaml(config))
    record = platform_record(config)
    if not folder.env.exists():
        write_json(folder.env, record)
    elif read_json(folder.env) != record:
        write_json(folder.env_after(len(history.records)), record)


def _catch_up(ledger: Ledger, history: History, restored: Restored, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add what the generations so far lack: the last one its digest, and each its row of metrics."""
    done = Commit(restored.digest, update_metrics(restored.stats, update_s=restored.seconds))
    if len(history.digests) < len(history.records):
        confirm(history.records[-1], done, history=ledger.history, at=ledger.at)
    pending = read_json(ledger.folder.pending) if ledger.folder.pending.exists() else {}
    there = {row["generation"] for row in rows if "fitness/mean" in row}
    for record in history.records:
        if record.generation in there:
            continue
        row = pending if pending.get("generation") == record.generation else record_metrics(record)
        if record is history.records[-1] and restored.start < restored.updates:
            row = {**row, **done.metrics}
        row = ledger.write_metrics({**row, "time/compile_s": ledger.clock.seconds, **memory_metrics()})
        ledger.totals = ledger.totals.after(row, restored.digest)
