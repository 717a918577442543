"""Histories made up for tests."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import Config, ESConfig
from esopt_jax.core.replay import Record
from esopt_jax.training.coefficients import coefficients, scheduled
from esopt_jax.training.history import applied_row, generation_row, header_row

POPULATION = 4
ES = ESConfig(population_size=POPULATION)


def record(generation: int, *, fitness: Any = None, es: ESConfig = ES) -> Record:
    """A generation of four members."""
    drawn = np.random.default_rng(generation).standard_normal(POPULATION).astype(np.float32)
    fitness = drawn if fitness is None else fitness
    finite = np.isfinite(fitness).all()
    return Record(
        generation=generation,
        sigma=scheduled(es, "sigma", generation),
        alpha=scheduled(es, "alpha", generation),
        fitness=fitness,
        weights=coefficients(fitness, es, generation)[0] if finite else fitness,
        excluded=(1,),
        cases=(3, 0),
    )


def make_rows(generations: int, *, es: ESConfig = ES) -> list[dict[str, Any]]:
    """Header, and every generation with its digest."""
    rows = [header_row(Config(es=es), base_digest="b" * 32, fingerprint="f" * 16)]
    for index in range(generations):
        rows += [generation_row(record(index, es=es)), applied_row(index, f"{index:032x}")]
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """One line a row."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
