"""The held-out evaluations that a run makes of its own weights: each is played once, then read from its file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from esopt_jax.rollouts.trajectory import write_trajectories
from esopt_jax.training.best_random import best_random
from esopt_jax.training.evaluate import PRESET, evaluate_view, policy_view, samplings
from esopt_jax.training.evaluations import BEST_RANDOM, TUNED, Scored
from esopt_jax.training.freed_memory import give_back
from esopt_jax.training.ledger import Ledger
from esopt_jax.training.metrics import evaluation_metrics
from esopt_jax.training.moments import Moment
from esopt_jax.training.restore import base_master, base_model
from esopt_jax.training.scoring import Evaluation
from esopt_jax.training.session import Session
from esopt_jax.types import Master

log = logging.getLogger(__name__)


def score_weights(session: Session, master: Master, ledger: Ledger, updates: int) -> None:
    """Score the weights after `updates` updates, before and after training under every sampling if so configured."""
    config = session.config
    everyway = config.eval.by_sampling and updates in (0, config.es.generations)
    for sampling in samplings(config.rollout) if everyway else (PRESET,):
        scored = Scored(updates, TUNED, sampling)
        result = once(session, ledger, scored, partial(_play, session, master, scored, ledger))
        if sampling == PRESET and updates not in ledger.evaluated:
            _report(result, ledger, scored)


def score_best_random(session: Session, ledger: Ledger) -> None:
    """Score the best of N single perturbations of the base."""
    config = session.config

    def play() -> Evaluation:
        log.info("scoring the best of %d random perturbations", config.es.population_size)
        return best_random(session, base_master(base_model(config.model.path, config.es, config.train.mesh), config.es))

    once(session, ledger, Scored(config.es.generations, BEST_RANDOM, PRESET), play)


def once(session: Session, ledger: Ledger, scored: Scored, play: Callable[[], Evaluation]) -> Evaluation:
    """The evaluation from the file, or played and put there."""
    result = ledger.evaluations.get(scored)
    if result is None:
        started = time.perf_counter()
        give_back()
        result = play()
        ledger.at(Moment.EVALUATION)
        cases = [index for index, _ in session.held_out]
        ledger.evaluations.add(scored, result, cases=cases, seconds=time.perf_counter() - started)
    return result


def _play(session: Session, master: Master, scored: Scored, ledger: Ledger) -> Evaluation:
    result, episodes = evaluate_view(session, policy_view(session, master), scored.sampling)
    if scored.sampling == PRESET and session.config.log.trajectories != "none":
        write_trajectories(ledger.folder.held_out(scored.updates), episodes)
    return result


def _report(result: Evaluation, ledger: Ledger, scored: Scored) -> None:
    """The row of metrics of an evaluation, and what a person is told."""
    ledger.write_metrics(evaluation_metrics(scored.updates, result, eval_s=ledger.evaluations.seconds(scored)))
    ledger.evaluated.add(scored.updates)
    faults = f", {result.faults} faults" if result.faults else ""
    text = "after %d updates: held-out solve rate %.3f (%.3f .. %.3f), %d episodes%s"
    log.info(text, scored.updates, result.mean, *result.ci95, result.episodes, faults)
