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


PUBLIC = """load_config train resume Run evaluate load_source load_model generate sample_noise perturb update
make_environment EsoptError StoppedError __version__"""


def test_the_public_surface_is_this_and_is_documented():
    assert set(esopt_jax.__all__) == set(PUBLIC.split())
    for name in esopt_jax.__all__:
        thing = getattr(esopt_jax, name)
        assert name == "__version__" or (thing.__doc__ and thing.__module__.startswith("esopt_jax."))


def test_every_public_function_shows_an_example():
    errors = {"EsoptError", "StoppedError", "__version__"}
    for name in set(esopt_jax.__all__) - errors:
        assert ">>> " in getattr(esopt_jax, name).__doc__, name


def test_a_run_is_read_through_these():
    methods = {
        "load",
        "config",
        "summary",
        "history",
        "metrics",
        "evaluations",
        "episodes",
        "params",
        "replay",
        "restore",
    }
    assert {name for name in vars(esopt_jax.Run) if not name.startswith("_")} == {*methods, "folder"} - {"folder"}
