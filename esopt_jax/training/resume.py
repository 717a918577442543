"""Go on with a run that a process left, wherever it stopped, as if it never had.

Nothing is changed before everything has been read and checked (`left_behind`) and the weights are there. Then partial
last lines are cut off, what the last generation still lacks is added, and the loop goes on.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from esopt_jax.config import config_hash, to_yaml
from esopt_jax.config_reader import load_config
from esopt_jax.core.digest import digest
from esopt_jax.core.fingerprint import fingerprint
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.rollouts.processes import agreed, is_owner, peers_told
from esopt_jax.training.checkpoints import set_aside, tidy
from esopt_jax.training.commit import Commit, confirm
from esopt_jax.training.freed_memory import share_one_heap
from esopt_jax.training.history import header_row, resumed_row
from esopt_jax.training.history_reader import History, new_history
from esopt_jax.training.jsonl import expendable, write_json, write_text
from esopt_jax.training.ledger import Ledger, open_ledger
from esopt_jax.training.left_behind import LeftBehind, agreed_config, read_left_behind
from esopt_jax.training.lock import run_lock
from esopt_jax.training.loop import run_to_the_end
from esopt_jax.training.metrics import memory_metrics, record_metrics, update_metrics
from esopt_jax.training.mirror import own_copy, quiet
from esopt_jax.training.moments import At, pass_by
from esopt_jax.training.monitors import check_monitor
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.platform_record import platform_record
from esopt_jax.training.restore import Restored, base_master, restore
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.session import load_parts, open_session
from esopt_jax.training.stopping import stops

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
        >>> from esopt_jax import load_config, train
        >>> keep = ["es.sigma_schedule=constant", "eval.episodes=4", "log.progress=none"]
        >>> run = train(load_config("smoke", [*keep, "es.generations=1"]), tempfile.mkdtemp())
        >>> resume(run.folder, ["es.generations=2"]).summary["generations"]
        2
    """
    started = time.perf_counter() if started is None else started
    shared = RunFolder(Path(run_dir))
    if method_of(shared) == "grpo":
        from esopt_jax.training.baselines.grpo_resume import resume_grpo

        return resume_grpo(shared.path, overrides, started=started, at=at)
    with stops() as stop, peers_told(), own_copy(shared.path) as folder, run_lock(folder.lock) as held:
        left = read_left_behind(folder)
        config = quiet(agreed_config(left, overrides))
        check_monitor(config)
        share_one_heap()
        use_numerics(config)
        environment, model = load_parts(config)
        mark, header, history = fingerprint(), None, left.history
        if history is None:
            header = header_row(config, base_digest=digest(base_master(model, config.es)), fingerprint=mark)
            history = new_history(header)
        restored = restore(
            history,
            model,
            updates=len(history.records),
            fingerprint=mark,
            mesh=config.train.mesh,
            checkpoints=shared.checkpoints,
        )
        if not agreed(restored.digest):  # and nothing changes before all have read what they need
            raise StoppedError("the weights that the processes went on from differ: their devices are not alike")
        stop.check()  # a signal can make a checkpoint look unusable
        log.info("%s: %s", folder.path, _describe(restored))
        model = dataclasses.replace(model, params={})
        with open_session(config, environment, model) as session:
            ledger_of_run = open_ledger(
                config,
                folder,
                totals=left.totals(history),
                fingerprint=mark,
                started=started,
                stop=stop,
                at=at,
                held=held,
                earlier=left.earlier(),
            )
            with ledger_of_run as ledger:
                if header is not None:
                    ledger.history.write(header)
                _note_changes(ledger, history)
                _catch_up(ledger, history, restored, left)
                if is_owner():
                    for updates in restored.unusable:
                        set_aside(folder.checkpoints, updates)
                    tidy(folder.checkpoints, updates=restored.updates, keep=config.train.keep_checkpoints)
                run_to_the_end(session, restored.master, ledger, updates=restored.updates)
    return Run(shared.path)


def method_of(folder: RunFolder) -> str:
    """The method of a run; evolution's files are checked where they are read, so what cannot be read passes as one."""
    try:
        return load_config(folder.config.absolute()).method
    except EsoptError:
        return "es"


def _describe(restored: Restored) -> str:
    replayed = restored.updates - restored.start
    origin = f"the checkpoint of {restored.start}" if restored.start else "the base model"
    note = "" if restored.exact else "; computed on another platform, so equal to tolerance only"
    return f"going on after {restored.updates} updates, from {origin} with {replayed} replayed{note}"


def _note_changes(ledger: Ledger, history: History) -> None:
    """Write down whatever is different from here on: platform, config, versions and devices."""
    folder, config = ledger.folder, ledger.config
    if ledger.fingerprint != history.fingerprint or config_hash(config) != history.config_hashes[-1]:
        ledger.history.write(resumed_row(config, fingerprint=ledger.fingerprint))
    write_text(folder.config, to_yaml(config))
    record = platform_record(config)
    if not folder.env.exists():
        write_json(folder.env, record)
    elif expendable(folder.env) != record:
        write_json(folder.env_after(len(history.records)), record)


def _catch_up(ledger: Ledger, history: History, restored: Restored, left: LeftBehind) -> None:
    """Add what the generations so far lack: the last one its digest, and each its row of metrics."""
    done = Commit(restored.digest, update_metrics(restored.stats, update_s=restored.seconds))
    if len(history.digests) < len(history.records):
        confirm(history.records[-1], done, history=ledger.history, at=ledger.at)
    pending = left.pending
    for record in history.records:
        if record.generation in left.generations:
            continue
        row = pending if pending.get("generation") == record.generation else record_metrics(record)
        if record is history.records[-1] and restored.start < restored.updates:
            row = {**row, **done.metrics}
        row = ledger.write_metrics({**row, "time/compile_s": ledger.clock.seconds, **memory_metrics()})
        ledger.totals = ledger.totals.after(row, restored.digest)
