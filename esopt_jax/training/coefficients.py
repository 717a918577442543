"""What a config makes of a generation: its sigma, its alpha, and the coefficients that follow from its fitness."""

from __future__ import annotations

import numpy as np

from esopt_jax.config import ESConfig
from esopt_jax.core.schedules import schedule
from esopt_jax.core.shaping import shape_fitness
from esopt_jax.training.cases import permutation
from esopt_jax.types import Purpose


def scheduled(es: ESConfig, name: str, generation: int) -> float:
    """`sigma` or `alpha` of a generation."""
    start, end = getattr(es, name), getattr(es, f"{name}_end")
    return schedule(
        getattr(es, f"{name}_schedule"),
        start,
        start if end is None else end,
        generation,
        es.generations,
        getattr(es, f"{name}_warmup"),
    )


def coefficients(fitness: np.ndarray, es: ESConfig, generation: int) -> tuple[np.ndarray, str | None]:
    """The weights of the update, `[P]` float32, and why they are all 0, if they are.

    The controls act here: `shuffled_rewards` gives each member the fitness of another, `zero_update` gives no weight.
    """
    none = np.zeros(len(fitness), np.float32)
    if es.control == "zero_update":
        return none, "es.control is zero_update"
    if es.control == "shuffled_rewards":
        fitness = fitness[permutation(es.seed, len(fitness), purpose=Purpose.CONTROL, index=generation)]
    shaped = shape_fitness(fitness, method=es.shaping)
    if shaped.degenerate:
        return none, f"all members have the same fitness ({fitness.mean():.4g})"
    return np.asarray(shaped.weights, np.float32), None
