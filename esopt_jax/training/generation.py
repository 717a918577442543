"""One generation up to its update: perturb, play, score, shape. Nothing here changes the weights."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from esopt_jax.core.replay import Record
from esopt_jax.rollouts.fitness import population_fitness
from esopt_jax.rollouts.population import rollout_population
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.coefficients import coefficients, scheduled
from esopt_jax.training.session import Session
from esopt_jax.types import Master, Trajectory, View

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generation:
    """What a population did and what follows for the weights.

    Attributes:
        record: what the history says of it.
        episodes: `[P][C * episodes_per_case]`.
        skipped: why there is no update, or None.
        rollout_s: seconds of perturbing and playing.
        perturb_s: seconds of it spent on perturbing.
    """

    record: Record
    episodes: list[list[Trajectory]]
    skipped: str | None
    rollout_s: float
    perturb_s: float


def play_generation(session: Session, master: Master, index: int) -> Generation:
    """Let the population of generation `index` play, and shape its fitness.

    Raises:
        StoppedError: more than half of the episodes were lost to infrastructure errors.
    """
    config = session.config
    sigma, alpha = scheduled(config.es, "sigma", index), scheduled(config.es, "alpha", index)
    cases = session.training_cases(0 if config.method == "randopt" else index)  # which compares all of them
    started = time.perf_counter()
    views = _Timed(session.stage.views)
    episodes = rollout_population(
        dataclasses.replace(session.stage, views=views),
        master,
        cases,
        seed=config.es.seed,
        generation=index,
        sigma=sigma,
        members=range(config.es.population_size),
        sampling=make_sampling(config.rollout),
    )
    rollout_s = time.perf_counter() - started
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
    return Generation(record, episodes, skipped, rollout_s=rollout_s, perturb_s=views.seconds)


class _Timed:
    """A function and the seconds spent until its results were there."""

    def __init__(self, function: Callable[..., View]) -> None:
        self._function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> View:
        started = time.perf_counter()
        view = jax.block_until_ready(self._function(*args))
        self.seconds += time.perf_counter() - started
        return view
