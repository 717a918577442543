"""The generation loop: play, write down, update, write down; evaluate before, between and after.

    run = train(load_config("quickstart"), "runs/mine")
    run.summary["final"]["mean"]

Bad input is refused before anything is written. What is written is in `run_folder`, in an order that makes the history
enough to rebuild the weights (`commit`).
"""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import Config, to_yaml
from esopt_jax.core.digest import digest
from esopt_jax.core.fingerprint import fingerprint
from esopt_jax.core.master import make_master, master_value
from esopt_jax.core.update import Update, make_update
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model, load_model
from esopt_jax.models.save import save_params
from esopt_jax.rollouts.trajectory import write_trajectories
from esopt_jax.training.best_random import best_random
from esopt_jax.training.commit import commit
from esopt_jax.training.compile_clock import CompileClock, compile_clock
from esopt_jax.training.evaluate import PRESET, evaluate_view, policy_view, samplings
from esopt_jax.training.generation import Generation, play_generation
from esopt_jax.training.history import HistoryWriter, header_row
from esopt_jax.training.jsonl import write_json
from esopt_jax.training.metrics import MetricsWriter, evaluation_metrics, generation_metrics
from esopt_jax.training.platform_record import platform_record
from esopt_jax.training.progress import Report, progress
from esopt_jax.training.run_folder import RunFolder, check_run_dir, create_run_folder
from esopt_jax.training.scoring import Evaluation, gain
from esopt_jax.training.session import Session, load_parts, open_session
from esopt_jax.training.summary import Totals, summarize
from esopt_jax.types import Master

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, and what its `summary.json` says."""

    folder: Path
    summary: dict[str, Any]


@dataclass
class _Ledger:
    """Where a run writes, and what its summary will say so far: kept up to date, since a run may stop anywhere."""

    folder: RunFolder
    history: HistoryWriter
    metrics: MetricsWriter
    clock: CompileClock
    totals: Totals
    evaluations: dict[str, Any] = field(default_factory=dict)


def train(config: Config, run_dir: str | Path, *, started: float | None = None) -> Run:
    """Tune the agent of `config` and leave everything in `run_dir`.

    Args:
        config: what to run.
        run_dir: a new or empty folder.
        started: `time.perf_counter()` at which the command began, for `wall_s`; by default now.

    Raises:
        EsoptError: bad input. If it shows only once the run goes, the folder holds what there was.
        StoppedError: infrastructure errors took over; the folder holds what there was, its summary says why.
    """
    started = time.perf_counter() if started is None else started
    check_run_dir(Path(run_dir))
    environment, model = load_parts(config)
    master = _base_master(config, model)
    model = dataclasses.replace(model, params={})  # the master may share its arrays, and each update donates them
    stop: EsoptError | None = None
    with compile_clock() as clock, open_session(config, environment, model) as session:
        folder = create_run_folder(Path(run_dir), to_yaml(config))
        with HistoryWriter(folder.history) as history, MetricsWriter(folder.metrics) as metrics:
            base_digest, mark = digest(master), fingerprint()
            history.write(header_row(config, base_digest=base_digest, fingerprint=mark))
            write_json(folder.env, platform_record(config))
            ledger = _Ledger(folder, history, metrics, clock, Totals(base_digest))
            try:
                _run(session, master, ledger)
            except EsoptError as fault:
                stop = fault
    summary = summarize(
        config,
        ledger.totals,
        stopped_because=None if stop is None else str(stop),
        fingerprint=mark,
        evaluations=ledger.evaluations,
        wall_s=time.perf_counter() - started,
        compile_s=clock.seconds,
    )
    write_json(folder.summary, summary)
    if stop is not None:
        raise type(stop)(f"{stop} (what there was is in {str(folder.path)!r})")
    return Run(folder.path, summary)


def _run(session: Session, master: Master, ledger: _Ledger) -> None:
    """Everything between the header of the history and the summary; `master` is used up."""
    config, found = session.config, ledger.evaluations
    log.info("run folder %s; scoring the base model, after compiling", ledger.folder.path)
    base = _evaluate(session, master, ledger, updates=0)
    found["base"] = base.record()
    found["base_by_sampling"] = _by_sampling(session, master, base)
    with progress(config.log.progress, config.es.generations) as report:
        master, last = _generations(session, master, ledger, report)
    final = last or _evaluate(session, master, ledger, updates=config.es.generations)
    save_params(ledger.folder.final, {path: master_value(leaf) for path, leaf in master.items()}, session.model)
    found["final"] = final.record()
    found["gain"] = gain(base, final, seed=config.eval.seed)
    found["final_by_sampling"] = _by_sampling(session, master, final)
    del master
    if config.eval.best_random:
        log.info("scoring the best of %d random perturbations", config.es.population_size)
        base_again = _base_master(config, load_model(config.model.path))
        found["best_random"] = best_random(session, base_again).record()


def _generations(session: Session, master: Master, ledger: _Ledger, report: Report) -> tuple[Master, Evaluation | None]:
    """All generations: the tuned weights, and their evaluation if the last generation had one."""
    config = session.config
    update = _make_update(config, session.model)
    result = None
    for index in range(config.es.generations):
        compiled = ledger.clock.seconds
        generation = play_generation(session, master, index)
        _write_members(ledger.folder, generation, config.log.trajectories)
        master, done = commit(generation, master, seed=config.es.seed, update=update, history=ledger.history)
        compile_s, abandoned = ledger.clock.seconds - compiled, session.pool.abandoned
        row = generation_metrics(generation, done, compile_s=compile_s, abandoned=abandoned)
        ledger.metrics.write(row)
        ledger.totals = ledger.totals.after(row, done.digest)
        report(row)
        if generation.skipped is not None:
            log.info("generation %d: no update, since %s", index + 1, generation.skipped)
        due = config.eval.every and (index + 1) % config.eval.every == 0
        result = _evaluate(session, master, ledger, updates=index + 1) if due else None
    return master, result


def _evaluate(session: Session, master: Master, ledger: _Ledger, *, updates: int) -> Evaluation:
    """Score the weights after `updates` updates, and leave the score and the episodes in the folder."""
    start = time.perf_counter()
    result, episodes = evaluate_view(session, policy_view(session, master), PRESET)
    ledger.metrics.write(evaluation_metrics(updates, result, eval_s=time.perf_counter() - start))
    if session.config.log.trajectories != "none":
        write_trajectories(ledger.folder.held_out(updates), episodes)
    faults = f", {result.faults} faults" if result.faults else ""
    text = "after %d updates: held-out solve rate %.3f (%.3f .. %.3f), %d episodes%s"
    log.info(text, updates, result.mean, *result.ci95, result.episodes, faults)
    return result


def _by_sampling(session: Session, master: Master, preset: Evaluation) -> dict[str, Any] | None:
    if not session.config.eval.by_sampling:
        return None
    view = policy_view(session, master)
    others = [name for name in samplings(session.config.rollout) if name != PRESET]
    return {PRESET: preset.record()} | {name: evaluate_view(session, view, name)[0].record() for name in others}


def _write_members(folder: RunFolder, generation: Generation, which: str) -> None:
    """The episodes of the members that `log.trajectories` names."""
    if which == "none":
        return
    everyone = range(len(generation.fitness))
    chosen = everyone if which == "all" else {int(np.argmax(generation.fitness)), int(np.argmin(generation.fitness))}
    write_trajectories(
        folder.trajectories(generation.index),
        [episode for member in sorted(chosen) for episode in generation.episodes[member]],
    )


def _base_master(config: Config, model: Model) -> Master:
    return make_master(model.params, specs=model.specs, format=config.es.master)


def _make_update(config: Config, model: Model) -> Update:
    es = config.es
    return make_update(
        model.specs,
        population_size=es.population_size,
        plan=es.plan,
        rank=es.rank,
        antithetic=es.antithetic,
        rounding=es.rounding,
        multipliers=es.sigma_multipliers,
    )
