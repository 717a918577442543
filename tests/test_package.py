"""Importing the package is cheap and touches no device; the public surface is what the README says."""

import subprocess
import sys

import esopt_jax


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    ).stdout


HEAVY = ("jax", "transformers", "orbax", "matplotlib", "torch")


def loaded_by(modules: str) -> list[str]:
    return run(f"import sys, {modules}; print(*[m for m in {HEAVY} if m in sys.modules])").split()


def test_import_loads_no_heavy_library():
    assert loaded_by("esopt_jax") == []


def test_importing_every_part_loads_only_jax_and_touches_no_device():
    parts = "esopt_jax.cli.main, esopt_jax.training.loop, esopt_jax.envs.registry"
    assert loaded_by(parts) == ["jax"]
    touched = "from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    assert run(f"import {parts}; {touched}").strip() == "False"


def test_public_names_exist():
    for name in esopt_jax.__all__:
        assert getattr(esopt_jax, name) is not None, name
