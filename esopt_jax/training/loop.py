"""The generation loop: play, write down, update, write down; evaluate before, between and after.

    run = train(load_config("quickstart"), "runs/mine")
    run.summary["final"]["mean"]

Bad input is refused before anything is written. What is written is in `run_folder`, in an order that makes the history
enough to rebuild the weights (`commit`); `resume` goes on with what a process left.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from esopt_jax.config import Config, config_hash, to_yaml
from esopt_jax.core.digest import digest
from esopt_jax.core.fingerprint import fingerprint
from esopt_jax.core.update import Update
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.models.save import save_params
from esopt_jax.rollouts.processes import agreed, is_owner, peers_told
from esopt_jax.rollouts.trajectory import write_trajectories
from esopt_jax.training.baselines.grpo import learn_by_gradients
from esopt_jax.training.baselines.randopt import score_randopt
from esopt_jax.training.commit import apply, confirm, write_down
from esopt_jax.training.freed_memory import give_back, share_one_heap
from esopt_jax.training.generation import Generation, play_generation
from esopt_jax.training.held_out import score_best_random, score_weights
from esopt_jax.training.history import header_row
from esopt_jax.training.jsonl import write_json
from esopt_jax.training.ledger import Ledger, open_ledger
from esopt_jax.training.metrics import memory_metrics, rollout_metrics
from esopt_jax.training.mirror import own_folder, quiet
from esopt_jax.training.moments import At, Moment, pass_by
from esopt_jax.training.monitors import check_monitor
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.platform_record import platform_record
from esopt_jax.training.progress import Report, progress
from esopt_jax.training.restore import base_master, base_model, base_policy, run_update
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder, check_run_dir, create_run_folder, next_run_dir
from esopt_jax.training.session import Session, load_parts, open_session
from esopt_jax.training.settle import settle
from esopt_jax.training.stopping import as_stop, stops
from esopt_jax.training.summary import Totals
from esopt_jax.types import Master

log = logging.getLogger(__name__)

Body = Callable[[Session, Master, Ledger, int], None]
"""The work of a method, from weights after so many updates to the last evaluation."""


def train(config: Config, run_dir: str | Path | None = None, *, started: float | None = None, at: At = pass_by) -> Run:
    """Tune the agent of `config` and leave everything in `run_dir`.

    Args:
        config: what to run.
        run_dir: a new or empty folder; by default the next `runs/<preset>-<n>`.
        started: `time.perf_counter()` at which the command began, for `wall_s`; by default now.
        at: is told where the run is (`moments`).

    Raises:
        EsoptError: bad input. If it shows only once the run goes, the folder holds what there was.
        StoppedError: infrastructure errors, a full disk or a signal; the folder holds what there was, its summary says
            why, and `resume` goes on from there.

    Example:
        >>> import tempfile
        >>> from esopt_jax.config_reader import load_config
        >>> config = load_config("smoke", ["es.generations=1", "eval.episodes=4", "log.progress=none"])
        >>> run = train(config, tempfile.mkdtemp())
        >>> run.summary["status"], run.summary["train_episodes"], len(run.metrics())
        ('finished', 32, 3)
    """
    started = time.perf_counter() if started is None else started
    run_dir = next_run_dir(config.preset) if run_dir is None else Path(run_dir)
    with stops() as stop, peers_told(), own_folder(run_dir) as place:
        check_run_dir(place)
        check_monitor(config)
        share_one_heap()
        use_numerics(config)
        if not agreed(config_hash(config)):
            raise EsoptError("the processes of this run have different configs; start all with the same command")
        config = quiet(config)
        environment, model = load_parts(config)
        master = base_master(model, config.es)
        model = dataclasses.replace(model, params={})  # the master may share its arrays, and each update donates them
        base, mark = digest(master), fingerprint()
        with open_session(config, environment, model) as session, create_run_folder(place, to_yaml(config)) as held:
            folder, check_held = held
            ledger_of_run = open_ledger(
                config,
                folder,
                totals=Totals(base),
                fingerprint=mark,
                started=started,
                stop=stop,
                at=at,
                held=check_held,
            )
            with ledger_of_run as ledger:
                ledger.history.write(header_row(config, base_digest=base, fingerprint=mark))
                write_json(folder.env, platform_record(config))
                run_to_the_end(session, master, ledger, updates=0, body=_BODIES[config.method])
    return Run(run_dir)


def run_to_the_end(session: Session, master: Master, ledger: Ledger, *, updates: int, body: Body | None = None) -> None:
    """Everything after the weights of `updates` generations are there, which are used up.

    `body` is the method's; by default evolution.
    """
    try:
        ledger.write_summary("running")
        ledger.at(Moment.COMPILE)
        (body or evolve)(session, master, ledger, updates)
        ledger.write_summary("finished")
    except BaseException as fault:
        stop = as_stop(fault, ledger.stop)
        if stop is None:
            raise
        hint = f" (what there was is in {str(ledger.folder.path)!r}; --resume goes on with it)" if is_owner() else ""
        try:
            ledger.write_summary("stopped", str(stop))
        except OSError as second:
            log.warning("the summary cannot be written: %s", second.strerror)
        raise type(stop)(f"{stop}{hint}") from fault
    finally:
        master.clear()  # its arrays, whoever still holds it


def evolve(session: Session, master: Master, ledger: Ledger, updates: int) -> None:
    """The generations that are left, and what follows them."""
    config, folder = session.config, ledger.folder
    total = config.es.generations
    if updates == 0:
        log.info("run folder %s; scoring the base model, after compiling", folder.path)
    elif not ledger.evaluations.has_base():  # its file was lost
        base = base_model(config.model.path, config.es, config.train.mesh)
        score_weights(session, base_policy(base, config.es, config.model.dtype), ledger, 0)
    settle(session, master, ledger, updates)
    update = run_update(
        session.model.specs, config.es, lambda: base_model(config.model.path, config.es, config.train.mesh)
    )
    with progress(config.log.progress, total, done=updates) as report:
        for index in range(updates, total):
            master = _generation(session, master, ledger, index, update, report)
            settle(session, master, ledger, index + 1)
    if is_owner():
        save_params(folder.final, master, session.model, replace=True)
    master.clear()  # to make room for the base
    if config.eval.best_random:
        score_best_random(session, ledger)
    if config.method == "randopt":
        score_randopt(session, ledger)
    folder.pending.unlink(missing_ok=True)


def _generation(session: Session, master: Master, ledger: Ledger, index: int, update: Update, report: Report) -> Master:
    """One generation, from its perturbations to its row of metrics: the weights after it."""
    give_back()
    compiled = ledger.clock.seconds
    generation = play_generation(session, master, index)
    give_back()
    record = generation.record
    _write_members(ledger.folder, generation, session.config.log.trajectories)
    abandoned = ledger.totals.earlier_abandoned + session.pool.abandoned
    played = rollout_metrics(generation, abandoned=abandoned)
    write_down(record, played, folder=ledger.folder, history=ledger.history, at=ledger.at)
    master, done = apply(record, master, seed=session.config.es.seed, update=update, at=ledger.at)
    if not agreed(done.digest):
        raise StoppedError(f"the processes' weights differ after generation {index + 1}: their devices are not alike")
    confirm(record, done, history=ledger.history, at=ledger.at)
    compile_s = ledger.clock.seconds - compiled
    row = ledger.write_metrics({**played, **done.metrics, "time/compile_s": compile_s, **memory_metrics()})
    ledger.totals = ledger.totals.after(row, done.digest)
    report(row)
    if generation.skipped is not None:
        log.info("generation %d: no update, since %s", index + 1, generation.skipped)
    return master


def _write_members(folder: RunFolder, generation: Generation, which: str) -> None:
    """The episodes of the members that `log.trajectories` names."""
    if which == "none":
        return
    fitness = generation.record.fitness
    chosen = range(len(fitness)) if which == "all" else {int(np.argmax(fitness)), int(np.argmin(fitness))}
    write_trajectories(
        folder.trajectories(generation.record.generation),
        [episode for member in sorted(chosen) for episode in generation.episodes[member]],
    )


_BODIES: dict[str, Body] = {"es": evolve, "randopt": evolve, "grpo": learn_by_gradients}
