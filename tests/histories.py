"""Histories made up for tests."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import Config, ESConfig
from esopt_jax.core.replay import Record
from esopt_jax.training.history import applied_row, generation_row, header_row

POPULATION = 4


def record(generation: int, *, fitness: Any = None, weights: Any = None) -> Record:
    """A generation of four members."""
    values = np.random.default_rng(generation).standard_normal(POPULATION).astype(np.float32)
    return Record(
        generation=generation,
        sigma=0.1,
        alpha=0.2,
        fitness=values if fitness is None else fitness,
        weights=-values if weights is None else weights,
        excluded=(1,),
        cases=(3, 0),
    )


def make_rows(generations: int, *, population_size: int = POPULATION) -> list[dict[str, Any]]:
    """Header, and every generation with its digest."""
    config = Config(es=ESConfig(population_size=population_size))
    rows = [header_row(config, base_digest="b" * 32, fingerprint="f" * 16)]
    for index in range(generations):
        rows += [generation_row(record(index)), applied_row(index, f"{index:032x}")]
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """One line a row."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
