"""What a run ran on, for `env.json`. Names no host and no user."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from esopt_jax import __version__
from esopt_jax.config import Config

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "optax", "safetensors", "tokenizers", "transformers")
FLAGS = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAX_PLATFORMS",
    "JAX_ENABLE_X64",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL",
    "JAX_THREEFRY_PARTITIONABLE",
    "JAX_NUM_CPU_DEVICES",
    "JAX_DISABLE_JIT",
    "JAX_DEBUG_NANS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
)
"""Environment variables that change what is computed, where, or in how much memory."""


def platform_record(config: Config) -> dict[str, Any]:
    """Versions, devices, flags, precision and git commit, ready for JSON."""
    import jax

    return {
        "esopt_jax": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
        "flags": {name: without_home(os.environ[name]) for name in FLAGS if name in os.environ},
        "precision": {
            "compute": config.model.dtype,
            "master": config.es.master,
            "matmul": str(jax.config.jax_default_matmul_precision or "default"),
            "deterministic": config.train.deterministic,
        },
        "git_commit": _git_commit(),
    }


def without_home(text: str | Path) -> str:
    """`text` with the home folder, which names a user, as `~`.

    Example:
        >>> without_home(Path.home() / "runs")
        '~/runs'
    """
    home = os.path.expanduser("~").rstrip("/")
    if not home.strip("~"):  # nobody's, or the root folder
        return str(text)
    return re.sub(r"(?<![\w./~-])" + re.escape(home) + r"(?![\w.-])", "~", str(text))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """Commit of the package's own checkout, with `+changes` when files differ from it; None outside a checkout."""
    source = Path(__file__).parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(source), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):
            return None  # installed inside somebody else's repository
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
