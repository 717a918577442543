"""One generation up to its update: perturb, play, score, shape. Nothing here changes the weights."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from esopt_jax.core.replay import Record
from esopt_jax.rollouts.fitness import population_fitness
from esopt_jax.rollouts.population import rollout_population
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.coefficients import coefficients, scheduled
from esopt_jax.training.session import Session
from esopt_jax.training.times import time_metrics
from esopt_jax.types import Master, Trajectory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generation:
    """What a population did and what follows for the weights.

    Attributes:
        record: what the history says of it.
        episodes: `[P][C * episodes_per_case]`.
        skipped: why there is no update, or None.
        rollout_s: seconds of perturbing and playing.
        times: where they went (`metrics`).
    """

    record: Record
    episodes: list[list[Trajectory]]
    skipped: str | None
    rollout_s: float
    times: dict[str, float | None]


def play_generation(session: Session, master: Master, index: int) -> Generation:
    """Let the population of generation `index` play, and shape its fitness.

    Raises:
        StoppedError: more than half of the episodes were lost to infrastructure errors.
    """
    config = session.config
    sigma, alpha = scheduled(config.es, "sigma", index), scheduled(config.es, "alpha", index)
    cases = session.training_cases(0 if config.method == "randopt" else index)  # which compares all of them
    started = time.perf_counter()
    clock = session.stage.clock
    clock.restart()
    compiled = clock.compiled()
    episodes = rollout_population(
        session.stage,
        master,
        cases,
        seed=config.es.seed,
        generation=index,
        sigma=sigma,
        members=range(config.es.population_size),
        sampling=make_sampling(config.rollout),
    )
    rollout_s = time.perf_counter() - started
    times = time_metrics(clock, rollout_s - (clock.compiled() - compiled))
    scored = population_fitness(
        episodes,
        common_random_numbers=config.rollout.common_random_numbers,
        center_cases=config.es.center_cases,
    )
    weights, skipped = coefficients(scored.fitness, config.es, index)
    record = Record(
        generation=index,
        sigma=sigma,
        alpha=alpha,
        fitness=scored.fitness,
        weights=weights,
        excluded=scored.dropped,
        cases=tuple(case for case, _ in cases),
    )
    return Generation(record, episodes, skipped, rollout_s=rollout_s, times=times)
