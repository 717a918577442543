"""Importing the package is cheap and touches no device; the public surface is what the README says."""

import subprocess
import sys

import esopt_jax


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_import_loads_no_heavy_library():
    code = "import sys, esopt_jax; print([m for m in ('jax', 'transformers', 'orbax', 'matplotlib', 'torch') if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_importing_every_part_touches_no_device_and_warns_nothing():
    code = """
import esopt_jax.cli.main, esopt_jax.training.loop, esopt_jax.rollouts.population, esopt_jax.envs.registry, sys
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized(), [m for m in ('transformers', 'orbax', 'matplotlib', 'torch') if m in sys.modules])
"""
    assert run(code).split() == ["False", "[]"]


def test_public_names_exist():
    for name in esopt_jax.__all__:
        assert getattr(esopt_jax, name) is not None, name
