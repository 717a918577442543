"""The baseline without any update: the best of N single perturbations of the base.

It answers whether evolution found more than luck does. The perturbations are those of a generation that training never
reaches, with its first sigma, and are compared on a tenth of the episodes that training plays.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from esopt_jax.core.master import cast, view_dtype
from esopt_jax.core.noise import noise_key, noise_sign
from esopt_jax.core.perturb import materialize, perturb
from esopt_jax.rollouts.fitness import population_fitness
from esopt_jax.rollouts.population import rollout_population
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.evaluate import PRESET, evaluate_view
from esopt_jax.training.scoring import Evaluation
from esopt_jax.training.session import Session
from esopt_jax.types import Master, View


def best_random(session: Session, base: Master, *, share: float = 0.1) -> Evaluation:
    """Held-out score of the best perturbation.

    Args:
        session: as training used it; its compiled population program is used again.
        base: the base weights.
        share: episodes for finding it, as a share of the training episodes; at least one generation's worth.

    Raises:
        StoppedError: too many infrastructure errors.
    """
    rounds = max(1, round(share * session.config.es.generations))
    winner = member_policy(session, base, find_best(session, base, rounds=rounds))
    return evaluate_view(session, winner, PRESET)[0]


def find_best(session: Session, base: Master, *, rounds: int) -> int:
    """The member with the highest mean fitness over `rounds` sets of training cases; the lowest index among equals."""
    config = session.config
    reserved = config.es.generations
    fitness = [
        population_fitness(
            rollout_population(
                session.stage,
                base,
                session.training_cases(reserved + i),
                seed=config.es.seed,
                generation=reserved,
                sigma=config.es.sigma,
                members=range(config.es.population_size),
                sampling=make_sampling(config.rollout),
            ),
            common_random_numbers=config.rollout.common_random_numbers,
        ).fitness
        for i in range(rounds)
    ]
    return int(np.argmax(np.mean(fitness, axis=0)))


def member_policy(
    session: Session, base: Master, member: int, *, generation: int | None = None, sigma: float | None = None
) -> View:
    """What the forward pass reads of one perturbation, dense and in the compute type; by default of those here."""
    es, dtype = session.config.es, jnp.dtype(session.config.model.dtype)
    generation = es.generations if generation is None else generation
    key = noise_key(es.seed, generation, member, antithetic=es.antithetic)
    with session.stage.engine.within():
        view = perturb(
            key,
            base,
            specs=session.model.specs,
            sigma=es.sigma if sigma is None else sigma,
            plan=es.plan,
            rank=es.rank,
            dtype=dtype,
            sign=noise_sign(member, es.antithetic),
            multipliers=es.sigma_multipliers,
            scope=es.scope,
        )
        for spec in session.model.specs:  # one at a time: the whole in float32 would be twice what is needed
            dense = materialize({spec.path: view[spec.path]}, (spec,))[spec.path]
            view[spec.path] = cast(dense, view_dtype(dtype, spec.keep_float32))
    return view
