"""Precision and determinism reach JAX and env.json. XLA reads its flags once, so each case is a process of its own."""

import json
import os
import subprocess
import sys

import pytest

from esopt_jax.training.platform_record import without_home

_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def _python(code: str, **environment: str) -> dict:
    """What `code` leaves in `said`, after `use(section values of train)` is defined."""
    start = """
import json, os
from esopt_jax.config_reader import from_dict
from esopt_jax.errors import EsoptError
from esopt_jax.training.numerics import use_numerics
from jax._src import xla_bridge

said = {}

def use(**train):
    use_numerics(from_dict({"train": train}))
"""
    end = "\nprint(json.dumps(said))"
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_DEFAULT_MATMUL_PRECISION")}
    command = [sys.executable, "-W", "error", "-c", start + code + end]
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_both_keys_are_in_env_json_and_start_no_device():
    said = _python(
        """
use(matmul_precision="highest", deterministic=True)
said["started"] = xla_bridge.backends_are_initialized()
import jax
from esopt_jax.training.platform_record import platform_record
config = from_dict({"train": {"matmul_precision": "highest", "deterministic": True}})
jax.config.update("jax_platforms", "cpu")
said |= platform_record(config)  # starts the CPU, which must know the flag: XLA aborts over one it does not
""",
        JAX_PLATFORMS="cuda,cpu",
    )
    assert said["started"] is False and said["backend"] == "cpu"
    assert said["precision"]["matmul"] == "highest" and said["precision"]["deterministic"] is True
    assert said["flags"]["XLA_FLAGS"] == _DETERMINISTIC


def test_highest_precision_is_in_the_compiled_product():
    said = _python(
        """
import jax
use(matmul_precision="highest")
x = jax.numpy.ones((2, 2))
said["text"] = jax.jit(lambda a: a @ a).lower(x).as_text()
use(matmul_precision="default")
said["after"] = jax.jit(lambda a: a @ a + 1).lower(x).as_text()
"""
    )
    assert "HIGHEST" in said["text"] and "HIGHEST" not in said["after"]


def test_default_leaves_the_precision_of_the_environment():
    code = """
import jax
use()
said["default"] = jax.config.jax_default_matmul_precision
use(matmul_precision="high")
said["high"] = jax.config.jax_default_matmul_precision
"""
    assert _python(code, JAX_DEFAULT_MATMUL_PRECISION="highest") == {"default": "highest", "high": "high"}
    assert _python(code) == {"default": None, "high": "high"}


@pytest.mark.parametrize(
    ("platforms", "before", "after"),
    [
        ("", "", _DETERMINISTIC),
        ("cuda", "--xla_dump_to=x", f"--xla_dump_to=x {_DETERMINISTIC}"),
        ("cpu", "", ""),
        ("cuda", "--xla_gpu_deterministic_ops", "--xla_gpu_deterministic_ops"),
    ],
)
def test_flag_is_added_where_a_gpu_may_be_used_and_only_once(platforms, before, after):
    code = """
use(deterministic=True)
use(deterministic=True)
use(deterministic=False)
said["flags"] = os.environ["XLA_FLAGS"]
"""
    assert _python(code, JAX_PLATFORMS=platforms, XLA_FLAGS=before)["flags"] == after


def test_a_contradiction_in_the_environment_is_an_error():
    code = """
try:
    use(deterministic=True)
except EsoptError as fault:
    said["error"] = str(fault)
"""
    error = _python(code, JAX_PLATFORMS="cuda", XLA_FLAGS="--xla_gpu_deterministic_ops=false")["error"]
    assert "XLA_FLAGS says --xla_gpu_deterministic_ops=false; remove it there" in error


def test_too_late_is_an_error_on_a_gpu_and_nothing_on_a_cpu():
    code = """
import jax
jax.devices()
use(deterministic=True)
said["flags"] = os.environ.get("XLA_FLAGS")
jax.default_backend = lambda: "gpu"
try:
    use(deterministic=True)
except EsoptError as fault:
    said["error"] = str(fault)
"""
    said = _python(code, JAX_PLATFORMS="cpu")
    assert said["flags"] is None and "already started on a GPU" in said["error"]


def test_without_home_names_no_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert without_home("--a=/home/ada/x --b=/home/ada2/x") == "--a=~/x --b=/home/ada2/x"
    assert without_home("/mnt/home/ada/x") == "/mnt/home/ada/x"
    monkeypatch.setenv("HOME", "/")
    assert without_home("/tmp") == "/tmp"
