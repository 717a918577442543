"""`esopt doctor` as a user runs it."""

import json
import os
import socket
import subprocess
import sys

import pytest


@pytest.fixture
def doctor(tmp_path):
    """Run it in a home of its own; returns the process."""
    home = tmp_path / "ada"
    home.mkdir()

    def run(*words, **environment):
        own = {k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "ESOPT_CACHE")}
        own.pop("XDG_CACHE_HOME", None)
        own |= {"HOME": str(home), "USER": "ada", "XLA_FLAGS": f"--xla_dump_to={home}/dump", **environment}
        command = [sys.executable, "-W", "error", "-m", "esopt_jax.cli.main", "doctor", *words]
        return subprocess.run(command, cwd=home, env=own, capture_output=True, text=True, timeout=200)

    return run


def test_report_to_paste_names_no_host_and_no_user(doctor):
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("esopt_jax     ") and any(line.startswith("devices       cpu: cpu") for line in lines)
    assert any("compile cache ~/.cache/esopt_jax/xla, can be written, holds 0.0 MiB" in line for line in lines)
    assert any("XLA_FLAGS=--xla_dump_to=~/dump" in line for line in lines)
    assert "ada" not in done.stdout and socket.gethostname() not in done.stdout
    assert done.stderr == ""


def test_json_says_the_same(doctor):
    report = json.loads(doctor("--json").stdout)
    assert report["jax"]["backend"] == "cpu" and report["jax"]["cpus"] >= 1 and "jax" in report["packages"]
    assert report["host_memory_bytes"]["total"] > report["host_memory_bytes"]["available"] > 0
    assert set(report["folders"]) == {"runs", "temporary", "compile_cache"}


def test_what_prevents_a_run_is_exit_code_2_with_a_fix(doctor):
    done = doctor(XLA_FLAGS="--xla_no_such_flag=1")
    assert done.returncode == 2 and done.stderr == ""
    assert done.stdout.splitlines()[-1] == (
        "PROBLEM: JAX does not start with JAX_PLATFORMS=cpu: Unknown flag in XLA_FLAGS: --xla_no_such_flag=1. "
        "Fix: remove that flag from the variable XLA_FLAGS"
    )
