"""`esopt train` and `esopt eval` as a user runs them, in a process of their own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_agent


def _esopt(workplace: Path, cwd: Path, command: str, factory: str, *words: str, **overrides: object):
    good = tiny_agent.settings(workplace / "model", f"{workplace / 'toys.py'}:{factory}", **overrides)
    (cwd / "tiny.yaml").write_text("description: a test\n")
    arguments = [command, "tiny.yaml", *words]
    for key, value in good.items():
        arguments += ["--set", f"{key}={value}"]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, "-m", "esopt_jax.cli.main", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
    )


def test_train_then_evaluate_the_result(workplace, tmp_path):
    started = time.perf_counter()
    done = _esopt(workplace, tmp_path, "train", "Even")
    took = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "tiny-1"
    summary = json.loads((run / "summary.json").read_text())
    assert str(Path("runs/tiny-1")) in done.stdout
    assert f"{summary['final']['mean']:.3f}" in done.stdout and "base, preset" in done.stdout
    assert "generation 2/2" in done.stderr and "ETA" in done.stderr
    assert (run / "reward_curve.png").stat().st_size > 1000
    assert 0.7 * took < summary["wall_s"] < took

    scored = _esopt(workplace, tmp_path, "eval", "Even", "--json", model__path=run / "final")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout) == {"updates": 0, "exact": True, **summary["final"]}


@pytest.mark.parametrize(("every", "code"), [(10, 0), (1, 3)])
def test_command_ends_although_steps_hang(workplace, tmp_path, every, code):
    options = f"{{how: hang, every: {every}}}"
    settings = {"rollout__step_timeout_s": 0.3, "rollout__step_retries": 0, "es__generations": 1}
    done = _esopt(workplace, tmp_path, "train", "Broken", env__options=options, **settings)
    ended = time.time()
    assert done.returncode == code, done.stderr
    summary = tmp_path / "runs" / "tiny-1" / "summary.json"
    assert ended - summary.stat().st_mtime < 5
    assert json.loads(summary.read_text())["status"] == ("finished" if code == 0 else "stopped")
    assert summary.with_name("reward_curve.png").is_file()
    if code == 3:
        assert done.stderr.splitlines()[-1].startswith(
            "esopt: error: every one of 16 evaluation episodes failed: timed out"
        )
        assert "Traceback" not in done.stderr
