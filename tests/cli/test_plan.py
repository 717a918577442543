"""`esopt plan` and `esopt train --dry-run` as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from esopt_jax.cli import main as cli

KEYS = {
    "model",
    "mesh",
    "parameters",
    "per_device_bytes",
    "collectives",
    "episodes_per_generation",
    "seconds_per_generation",
    "checkpoint_bytes",
    "fits",
    "advice",
}


def esopt(*words: str, cwd: str | os.PathLike) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "esopt_jax.cli.main", *words]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280)


def test_json_has_the_whole_report(tmp_path):
    done = esopt("plan", "smoke", "--json", "--tokens-per-s", "640", "--set", "train.mesh=[1, 2]", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    plan = json.loads(done.stdout)
    assert plan.keys() >= KEYS and plan["mesh"] == [1, 2] and plan["fits"]
    parts = plan["per_device_bytes"]
    assert set(parts) == {"weights", "master", "member", "caches", "scratch", "total"}
    assert parts.pop("total") == sum(parts.values())
    assert set(plan["collectives"]) == {"decode", "noise"} and plan["collectives"]["decode"]["all-gather"] == 0
    assert plan["seconds_per_generation"] == 32 * 9 * 8 / 640
    assert plan["config"]["es"]["population_size"] == 8 and plan["compiled"]["disagreements"] == []
    assert list(tmp_path.iterdir()) == []


def test_dry_run_says_the_same_and_writes_nothing(tmp_path):
    words = ["smoke", "--set", "es.population_size=4"]
    dry, plan = (esopt(*command, *words, cwd=tmp_path) for command in (("train", "--dry-run"), ("plan",)))
    assert dry.returncode == plan.returncode == 0 and dry.stdout == plan.stdout
    lines = dry.stdout.splitlines()
    assert lines[0] == "model         builtin:sudoku-4x4, 85,800 parameters, float32" and lines[-1] == "fits"
    assert "population    4 members x 4 cases, full noise, in 1 pass" in dry.stdout
    assert list(tmp_path.iterdir()) == []


def test_in_a_process_that_uses_jax_already(capsys):
    import jax

    before = jax.device_count()
    assert cli.main(["plan", "smoke", "--device-memory", "0.005", "--set", "es.population_size=4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("DOES NOT FIT: "))
    assert "5.1 MiB may be used" in lines[start] and lines[start + 1].startswith("  --set ")
    assert jax.device_count() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "smokey"], "esopt: error: unknown preset 'smokey'"),
        (["plan", "smoke", "--set", "train.mesh=[1,5]"], "does not divide over 5 devices"),
        (["plan", "smoke", "--set", "model.path=qwen3.5-28b"], "model folder 'qwen3.5-28b' does not exist"),
        (["plan", "smoke", "--device-memory", "0"], "'0' is not a number above 0"),
        (["plan", "smoke", "--tokens-per-s", "fast"], "'fast' is not a number above 0"),
        (["train", "--dry-run", "--resume", "out"], "--dry-run plans a new run"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path):
    done = esopt(*words, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--whole"]], ids=["periods", "whole"])
def test_the_largest_model_on_four_devices(options, tmp_path):
    done = esopt("plan", "h100x4-qwen3.5-27b", "--json", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert round(plan["per_device_bytes"]["weights"] / 2**30, 1) == 12.5
    assert plan["per_device_bytes"]["total"] <= 72 * 2**30 and plan["fits"]
    found = plan["collectives"]
    assert found["decode"].pop("all-reduce") == 2 * 64 + 3 and found["noise"].pop("all-reduce") > 0
    assert {count for counts in found.values() for count in counts.values()} == {0}
    compiled = plan["compiled"]
    assert compiled["disagreements"] == []
    assert compiled["decode"]["argument_bytes"] == 27_886_017_644 and compiled["decode"]["alias_bytes"] == 987_967_824
