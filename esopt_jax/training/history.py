"""`history.jsonl`: base model + this file = the weights after any generation.

    row 0       {"kind": "header", "schema", "noise_spec", "base_digest", "config_hash", "fingerprint", "es", "mesh"}
    then, for every generation g,
                {"kind": "generation", "generation": g, "sigma", "alpha", "fitness", "weights", "excluded", "cases"}
                {"kind": "applied", "generation": g, "digest"}
    and, where a run went on under another platform or for longer than planned,
                {"kind": "resumed", "fingerprint", "config_hash", "generations"}

The generation row is on the disk before the update runs and holds the coefficients themselves, so that a replay never
shapes fitness again; the applied row follows the update. Fitness and weights are exact float32 values.
`history_reader` reads the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import Config, config_hash, to_dict
from esopt_jax.core.replay import Record
from esopt_jax.training.jsonl import JsonlWriter, encode
from esopt_jax.training.moments import At, Moment, pass_by
from esopt_jax.types import NOISE_SPEC

SCHEMA = 1


def header_row(config: Config, *, base_digest: str, fingerprint: str) -> dict[str, Any]:
    """Row 0: everything that defines the noise, the update and the base they act on."""
    tree = to_dict(config)
    method = {} if config.method != "grpo" else {"method": config.method, config.method: tree[config.method]}
    return {
        "kind": "header",
        **method,
        "schema": SCHEMA,
        "noise_spec": NOISE_SPEC,
        "base_digest": base_digest,
        "config_hash": config_hash(config),
        "fingerprint": fingerprint,
        "es": tree["es"],
        "mesh": list(config.train.mesh),
    }


def generation_row(record: Record) -> dict[str, Any]:
    """What a generation was, before its update."""
    return {
        "kind": "generation",
        "generation": record.generation,
        "sigma": float(record.sigma),
        "alpha": float(record.alpha),
        "fitness": [float(x) for x in np.asarray(record.fitness, np.float32)],
        "weights": [float(x) for x in np.asarray(record.weights, np.float32)],
        "excluded": [int(x) for x in record.excluded],
        "cases": [int(x) for x in record.cases],
    }


def applied_row(generation: int, digest: str) -> dict[str, Any]:
    """Digest of the weights after generation `generation`."""
    return {"kind": "applied", "generation": generation, "digest": digest}


def resumed_row(config: Config, *, fingerprint: str) -> dict[str, Any]:
    """What is different from here on: rows after it were computed under this fingerprint and config."""
    generations = config.es.generations
    return {
        "kind": "resumed",
        "fingerprint": fingerprint,
        "config_hash": config_hash(config),
        "generations": generations,
    }


class HistoryWriter(JsonlWriter):
    """Appends rows, each on the disk when `write` returns. A context manager."""

    def __init__(self, path: Path, *, keep: int | None = None, at: At = pass_by) -> None:
        """As `JsonlWriter`; a generation's row passes `Moment.HALF_ROW`."""
        super().__init__(path, keep=keep)
        self._at = at

    def write_generation(self, record: Record) -> None:
        """Append the row of a generation and wait until it is on the disk."""
        line = encode(generation_row(record)) + "\n"
        self.append(line[: len(line) // 2], sync=False)
        self._at(Moment.HALF_ROW)
        self.append(line[len(line) // 2 :])
