"""Go on with a run of GRPO from its newest sound checkpoint, as if it had never stopped.

What the files say of steps after that checkpoint is cut off: these are played again, to the same result on the same
platform.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from esopt_jax.config import Config, config_hash, to_yaml
from esopt_jax.config_reader import load_config
from esopt_jax.core.digest import digest
from esopt_jax.core.fingerprint import fingerprint
from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.processes import peers_told
from esopt_jax.training.baselines.grpo import learn_by_gradients
from esopt_jax.training.baselines.grpo_files import Steps, check_header, newest_state, read_steps
from esopt_jax.training.baselines.grpo_learner import make_learner
from esopt_jax.training.checkpoints import saved_checkpoints, set_aside, tidy
from esopt_jax.training.evaluations import read_evaluations
from esopt_jax.training.history import header_row
from esopt_jax.training.jsonl import encode, expendable, read_lines, write_json, write_text
from esopt_jax.training.ledger import Earlier, open_ledger
from esopt_jax.training.lock import run_lock
from esopt_jax.training.loop import run_to_the_end
from esopt_jax.training.metrics import check_rows
from esopt_jax.training.mirror import own_copy, quiet
from esopt_jax.training.moments import At
from esopt_jax.training.monitors import check_monitor
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.platform_record import platform_record
from esopt_jax.training.restore import base_master
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.session import load_parts, open_session
from esopt_jax.training.stopping import stops
from esopt_jax.training.summary import Totals

log = logging.getLogger(__name__)


def resume_grpo(run_dir: Path, overrides: Sequence[str], *, started: float, at: At) -> Run:
    """As `resume.resume`, of a run whose method is `grpo`; that many steps may be added (`es.generations`)."""
    with stops() as stop, peers_told(), own_copy(run_dir) as folder, run_lock(folder.lock) as held:
        kept = load_config(folder.config.absolute())
        config = quiet(_asked(folder, kept, overrides))
        check_monitor(config)
        use_numerics(config)
        environment, model = load_parts(config)
        learner, mark = make_learner(config, model), fingerprint()
        steps = read_steps(folder.history)
        fresh = steps is None
        if steps is None:
            base = digest(base_master(model, config.es))
            steps = Steps(header_row(config, base_digest=base, fingerprint=mark), ())
        else:
            check_header(steps, kept, folder.config)
        if is_finished(folder, kept) and config.es.generations == kept.es.generations:
            raise EsoptError(
                f"the run in {str(folder.path)!r} is finished after {kept.es.generations} generations; to extend it "
                "give --set es.generations=N"
            )
        student, updates = newest_state(folder, steps, model, config, learner)
        if config.es.generations < updates:
            raise EsoptError(f"es.generations is {config.es.generations}; the run has {updates} already")
        stop.check()
        log.info("%s: going on after %d steps", folder.path, updates)
        if config_hash(config) != steps.header["config_hash"]:
            steps = dataclasses.replace(steps, header={**steps.header, "config_hash": config_hash(config)})
        rows = [steps.header, *(row for pair in steps.rows[:updates] for row in pair)]
        totals, earlier = _earlier(folder, steps, updates)
        write_text(folder.history, "".join(encode(row) + "\n" for row in rows))
        write_text(folder.config, to_yaml(config))
        if fresh or not folder.env.exists():
            write_json(folder.env, platform_record(config))
        for newer in saved_checkpoints(folder.checkpoints):
            if newer > updates:
                set_aside(folder.checkpoints, newer)
        tidy(folder.checkpoints, updates=updates, keep=config.train.keep_checkpoints)
        model = dataclasses.replace(model, params={})
        with open_session(config, environment, model) as session:
            ledger_of_run = open_ledger(
                config,
                folder,
                totals=totals,
                fingerprint=mark,
                started=started,
                stop=stop,
                at=at,
                held=held,
                earlier=dataclasses.replace(earlier, history=folder.history.stat().st_size),
            )
            with ledger_of_run as ledger:
                body = partial(learn_by_gradients, moments=student.moments)
                run_to_the_end(session, student.weights, ledger, updates=updates, body=body)
    return Run(run_dir)


def is_finished(folder: RunFolder, config: Config) -> bool:
    """Whether nothing is left to do under its own config."""
    steps = read_steps(folder.history)
    done = 0 if steps is None else len(steps.rows)
    through = expendable(folder.summary).get("status") == "finished" and done == config.es.generations
    return through and folder.final.is_dir()


def _asked(folder: RunFolder, kept: Config, overrides: Sequence[str]) -> Config:
    """The config to go on with.

    Raises:
        EsoptError: it would give other results than the run's own.
    """
    asked = load_config(folder.config.absolute(), overrides)
    same = dataclasses.replace(
        asked,
        model=dataclasses.replace(asked.model, path=kept.model.path),
        es=dataclasses.replace(asked.es, generations=kept.es.generations),
    )
    if config_hash(same) != config_hash(kept):
        raise EsoptError(
            f"--set {' '.join(overrides)} contradicts the run in {str(folder.path)!r}; leave it out, or start a new run"
        )
    return asked


def _earlier(folder: RunFolder, steps: Steps, updates: int) -> tuple[Totals, Earlier]:
    """What the files hold up to so many steps: totals, and where they are to be continued."""
    metrics = read_lines(folder.metrics).rows if folder.metrics.exists() else []
    scores = read_lines(folder.evaluations).rows if folder.evaluations.exists() else []
    check_rows(folder.metrics, metrics)
    rows = _first(metrics, lambda row: row["generation"] < updates + ("fitness/mean" not in row))
    found = _first(scores, lambda row: row.get("updates", 0) <= updates)
    totals = Totals(str(steps.header["base_digest"]))
    for row in rows:
        if "fitness/mean" in row:
            totals = totals.after(row, str(steps.rows[row["generation"]][1]["digest"]))
    said = {name: x for name, x in expendable(folder.summary).items() if type(x) in (int, float)}
    totals = dataclasses.replace(
        totals,
        earlier_wall_s=max([said.get("wall_s", 0.0), *(row.get("wall_s") or 0.0 for row in metrics)]),
        earlier_compile_s=said.get("compile_s", 0.0),
        earlier_abandoned=totals.abandoned_workers,
    )
    earlier = Earlier(
        metrics=_size(rows) if folder.metrics.exists() else None,
        evaluations=_size(found) if folder.evaluations.exists() else None,
        scores=read_evaluations(folder.evaluations, found),
        evaluated=frozenset(row["generation"] for row in rows if "eval/solve_rate" in row),
        drifted=frozenset(row["generation"] for row in rows if "drift/distance" in row),
    )
    return totals, earlier


def _first(rows: Sequence[Mapping[str, Any]], good: Any) -> list[Mapping[str, Any]]:
    """The rows before the first that is not good."""
    end = next((i for i, row in enumerate(rows) if not good(row)), len(rows))
    return list(rows[:end])


def _size(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(encode(row)) + 1 for row in rows)
