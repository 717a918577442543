"""`history.jsonl`: base model + this file = the final weights.

    row 0       {"kind": "header", "schema", "noise_spec", "base_digest", "config_hash", "fingerprint", "es", "mesh"}
    then, for every generation g,
                {"kind": "generation", "generation": g, "sigma", "alpha", "fitness", "weights", "excluded", "cases"}
                {"kind": "applied", "generation": g, "digest"}

The generation row is on the disk before the update runs and holds the coefficients themselves, so that a replay never
shapes fitness again; the applied row follows the update. Fitness and weights are exact float32 values.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import Config, config_hash, to_dict
from esopt_jax.training.jsonl import append
from esopt_jax.types import NOISE_SPEC

SCHEMA = 1


def header_row(config: Config, *, base_digest: str, fingerprint: str) -> dict[str, Any]:
    """Row 0: everything that defines the noise, the update and the base they act on."""
    return {
        "kind": "header",
        "schema": SCHEMA,
        "noise_spec": NOISE_SPEC,
        "base_digest": base_digest,
        "config_hash": config_hash(config),
        "fingerprint": fingerprint,
        "es": to_dict(config)["es"],
        "mesh": list(config.train.mesh),
    }


def generation_row(
    generation: int,
    *,
    sigma: float,
    alpha: float,
    fitness: np.ndarray,
    weights: np.ndarray,
    excluded: Sequence[int],
    cases: Sequence[int],
) -> dict[str, Any]:
    """What generation `generation` was, before its update.

    Args:
        generation: counted from 0.
        sigma: perturbation scale.
        alpha: step size, whether or not the update is skipped; then `weights` are all 0.
        fitness: `[P]` float32.
        weights: `[P]` float32 coefficients of the update.
        excluded: columns of episodes (`episodes_per_case` to a case, in the order of `cases`) that were dropped for all
            members because of faults.
        cases: `[C]` indices of the training tasks played.
    """
    return {
        "kind": "generation",
        "generation": generation,
        "sigma": float(sigma),
        "alpha": float(alpha),
        "fitness": [float(x) for x in np.asarray(fitness, np.float32)],
        "weights": [float(x) for x in np.asarray(weights, np.float32)],
        "excluded": [int(x) for x in excluded],
        "cases": [int(x) for x in cases],
    }


def applied_row(generation: int, digest: str) -> dict[str, Any]:
    """Digest of the weights after generation `generation`."""
    return {"kind": "applied", "generation": generation, "digest": digest}


class HistoryWriter:
    """Appends rows, each on the disk when `write` returns. A context manager."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("x", encoding="utf-8")

    def write(self, row: dict[str, Any]) -> None:
        """Append one row and fsync it."""
        append(self._stream, row, sync=True)

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
