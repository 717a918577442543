"""Group-relative policy optimisation on the same model functions, rollouts, run folder and evaluation as evolution.

A step is one "generation" of the run's files. Its history tells what happened but rebuilds nothing, since a gradient
follows from all activations: the checkpoint is the truth, and holds weights and moments.

    row 0       the header of a run of evolution, with "method" and the section "grpo"
    then, for every step g,
                {"kind": "step", "generation": g, "lr", "cases", "returns", "skipped"}
                {"kind": "applied", "generation": g, "digest", "state"}

`returns` has a list a task, null for an infrastructure error; `digest` is that of the weights, `state` that of weights
and moments, which a checkpoint of as many steps has.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import jax
import numpy as np

from esopt_jax.config import Config
from esopt_jax.core.digest import digest
from esopt_jax.models.save import save_params
from esopt_jax.rollouts.trajectory import write_trajectories
from esopt_jax.training.baselines.grpo_learner import Learner, make_learner
from esopt_jax.training.baselines.grpo_step import Groups, Student, learn, play_groups
from esopt_jax.training.held_out import score_best_random
from esopt_jax.training.ledger import Ledger
from esopt_jax.training.metrics import episode_metrics, finite, memory_metrics
from esopt_jax.training.moments import Moment
from esopt_jax.training.progress import progress
from esopt_jax.training.restore import base_master, base_model
from esopt_jax.training.session import Session
from esopt_jax.training.settle import settle
from esopt_jax.types import Master

log = logging.getLogger(__name__)

_MOMENT = "moments/"


def learn_by_gradients(session: Session, weights: Master, ledger: Ledger, updates: int, *, moments: Any = None) -> None:
    """The steps that are left, and what follows them.

    Args:
        session: of the run.
        weights: after so many steps; used up.
        ledger: of the run.
        updates: steps that lie behind them.
        moments: AdamW's then; None for those of a start.
    """
    config, folder, total = session.config, ledger.folder, session.config.es.generations
    learner = make_learner(config, session.model)
    student = Student(dict(weights), learner.init(weights) if moments is None else moments)
    weights.clear()
    base = base_master(base_model(config.model.path, config.es), config.es) if config.grpo.beta > 0 else None
    if updates == 0:
        log.info("run folder %s; scoring the base model, after compiling", folder.path)
    settle(session, student.weights, ledger, updates, kept=state_of(student))
    with progress(config.log.progress, total, done=updates) as report:
        for step in range(updates, total):
            student, row = _step(session, student, ledger, step, learner, base)
            settle(session, student.weights, ledger, step + 1, kept=state_of(student))
            report(row)
    save_params(folder.final, student.weights, session.model, replace=True)
    if config.eval.best_random:
        score_best_random(session, ledger)


def _step(
    session: Session, student: Student, ledger: Ledger, step: int, learner: Learner, base: Master | None
) -> tuple[Student, dict[str, Any]]:
    """One step, from its episodes to its row of metrics."""
    config, compiled = session.config, ledger.clock.seconds
    groups = play_groups(session, student.weights, step)
    ledger.at(Moment.BEFORE_ROW)
    if config.log.trajectories != "none":
        write_trajectories(ledger.folder.trajectories(step), _worth_reading(groups, config))
    started = time.perf_counter()
    capacity = session.stage.engine.spec.capacity
    student, learned = learn(student, groups, step, config=config, learner=learner, base=base, capacity=capacity)
    marks = {"digest": digest(student.weights), "state": digest(state_of(student))}
    update_s = time.perf_counter() - started
    ledger.at(Moment.UPDATE)
    ledger.history.write(_step_row(groups, step, learned))
    ledger.history.write({"kind": "applied", "generation": step, **marks})
    ledger.at(Moment.AFTER_APPLIED)
    row = {
        **group_metrics(groups, step, abandoned=ledger.totals.earlier_abandoned + session.pool.abandoned),
        **learned,
        "time/update_s": update_s,
        "time/compile_s": ledger.clock.seconds - compiled,
        **memory_metrics(),
    }
    row = ledger.write_metrics(finite(row))
    ledger.totals = ledger.totals.after(row, marks["digest"])
    return student, row


def state_of(student: Student) -> Master:
    """Weights and moments as one table of arrays, which checkpoints and digests know how to handle."""
    return {**student.weights, **{f"{_MOMENT}{i:05d}": x for i, x in enumerate(jax.tree.leaves(student.moments))}}


def student_of(state: Master, learner: Learner) -> Student:
    """The inverse of `state_of`."""
    weights = {path: leaf for path, leaf in state.items() if not path.startswith(_MOMENT)}
    leaves = [state[path] for path in sorted(state) if path.startswith(_MOMENT)]
    structure = jax.tree.structure(jax.eval_shape(learner.init, weights))
    return Student(weights, jax.tree.unflatten(structure, leaves))


def group_metrics(groups: Groups, step: int, *, abandoned: int) -> dict[str, Any]:
    """What is told of a step's episodes, under the names that generations have for the same."""
    episodes, returns = episode_metrics(groups.episodes), groups.returns
    played = returns[~np.isnan(returns)]
    spread = [float(np.nanstd(own)) for own in returns if (~np.isnan(own)).sum() > 1]
    return {
        "generation": step,
        **episodes,
        "reward_std": float(np.mean(spread)) if spread else float("nan"),
        "frac_reward_zero_std": float(np.mean([one < 1e-6 for one in spread])) if spread else float("nan"),
        "fitness/mean": float(played.mean()),
        "fitness/std": float(played.std()),
        "fitness/best": float(played.max()),
        "abandoned_workers": abandoned,
        "tokens_per_s": episodes["tokens"] / groups.rollout_s,
        "time/rollout_s": groups.rollout_s,
    }


def _step_row(groups: Groups, step: int, learned: dict[str, Any]) -> dict[str, Any]:
    returns = [[None if np.isnan(x) else float(x) for x in own] for own in groups.returns]
    row = {"kind": "step", "generation": step, "lr": learned["grpo/lr"], "cases": list(groups.cases)}
    return {**row, "returns": returns, "skipped": bool(learned["update/skipped"])}


def _worth_reading(groups: Groups, config: Config) -> list[Any]:
    """The episodes that `log.trajectories` asks for: all, or the best and the worst sample of each task."""
    if config.log.trajectories == "all":
        return list(groups.episodes)
    width, chosen = groups.returns.shape[1], []
    for task, own in enumerate(groups.returns):
        there = np.flatnonzero(~np.isnan(own))
        places = {int(there[pick(own[there])]) for pick in (np.argmax, np.argmin)} if len(there) else set()
        chosen += [groups.episodes[task * width + place] for place in sorted(places)]
    return chosen
