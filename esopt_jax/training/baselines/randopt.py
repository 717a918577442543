"""RandOpt: of many perturbations of the base keep the best, or let the best few vote on every action.

The perturbations are those that evolution would draw, `es.population_size` in each of `es.generations` rounds, all
around the base and all on the same training cases: as many episodes as a run of evolution plays. The weights never
move, so the history of such a run is one of evolution under `es.control: zero_update`, and `final` is the base.
"""

from __future__ import annotations

import logging

import numpy as np

from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.rollouts.vote import rollout_vote
from esopt_jax.training.best_random import member_policy
from esopt_jax.training.evaluate import PRESET, evaluate_view
from esopt_jax.training.evaluations import RANDOPT, RANDOPT_VOTE, Scored
from esopt_jax.training.held_out import once
from esopt_jax.training.history_reader import History, read_history
from esopt_jax.training.ledger import Ledger
from esopt_jax.training.restore import base_master, base_model
from esopt_jax.training.scoring import Evaluation, score
from esopt_jax.training.session import Session
from esopt_jax.types import View

log = logging.getLogger(__name__)


def score_randopt(session: Session, ledger: Ledger) -> None:
    """Score the best perturbation of a whole run on held-out tasks, and the vote of the best `randopt.voters`."""
    config = session.config
    history = read_history(ledger.folder.history)
    assert history is not None, "a run has its history"
    best = best_members(history, max(1, config.randopt.voters))
    log.info("the best perturbation of %d: member %d of round %d", _drawn(history), best[0][1], best[0][0])
    base = base_master(base_model(config.model.path, config.es, config.train.mesh), config.es)

    def view(place: tuple[int, int]) -> View:
        generation, member = place
        sigma = history.records[generation].sigma
        return member_policy(session, base, member, generation=generation, sigma=sigma)

    def vote() -> Evaluation:
        episodes = rollout_vote(
            session.stage,
            [view(place) for place in best],
            session.held_out,
            seed=config.eval.seed,
            sampling=make_sampling(config.rollout),
            repeats=config.eval.repeats,
            rows=config.eval.rows,
        )
        return score(episodes, cases=[index for index, _ in session.held_out], seed=config.eval.seed)

    last = config.es.generations
    once(session, ledger, Scored(last, RANDOPT, PRESET), lambda: evaluate_view(session, view(best[0]), PRESET)[0])
    if config.randopt.voters > 1:
        once(session, ledger, Scored(last, RANDOPT_VOTE, PRESET), vote)


def best_members(history: History, count: int) -> list[tuple[int, int]]:
    """Generation and member of the `count` perturbations with the highest fitness; the earlier ones among equals."""
    fitness = np.concatenate([record.fitness for record in history.records])
    places = [(record.generation, member) for record in history.records for member in range(len(record.fitness))]
    return [places[i] for i in np.argsort(-fitness, kind="stable")[:count]]


def _drawn(history: History) -> int:
    return sum(len(record.fitness) for record in history.records)
