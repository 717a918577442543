"""Fine-tune LLM agents with evolution strategies, in JAX.

The names below are loaded on first use, so that importing the package is quick and touches no device.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "load_config": "esopt_jax.config_reader",
    "train": "esopt_jax.training.loop",
    "resume": "esopt_jax.training.resume",
    "Run": "esopt_jax.training.run",
    "evaluate": "esopt_jax.training.evaluate",
    "load_source": "esopt_jax.training.source",
    "load_model": "esopt_jax.models.load",
    "generate": "esopt_jax.rollouts.generate",
    "sample_noise": "esopt_jax.core.noise",
    "perturb": "esopt_jax.core.perturb",
    "update": "esopt_jax.core.update",
    "make_environment": "esopt_jax.envs.registry",
    "EsoptError": "esopt_jax.errors",
    "StoppedError": "esopt_jax.errors",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'esopt_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
