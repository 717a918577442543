"""An environment that breaks: never a reward, always counted, and too much of it stops the run."""

import json
import time

import pytest

from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.training.evaluate import evaluate
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train


def _broken(**options):
    return {"env__options": options, "rollout__step_retries": 0, "es__generations": 1}


@pytest.mark.parametrize(
    ("how", "reason"),
    [("raise", "ConnectionError: service lost"), ("nan", "the reward nan"), ("hang", "timed out after 0.3 s")],
)
def test_one_broken_task_in_ten_is_counted_and_the_run_goes_on(make_config, tmp_path, how, reason):
    config = make_config("Broken", **_broken(how=how), rollout__step_timeout_s=0.3)
    started = time.perf_counter()
    summary = train(config, tmp_path / "run").summary
    took = time.perf_counter() - started
    (row,) = [row for row in read(tmp_path / "run" / "metrics.jsonl") if "fitness/mean" in row]
    (generation,) = [row for row in read(tmp_path / "run" / "history.jsonl") if row["kind"] == "generation"]
    broken = [position for position, case in enumerate(generation["cases"]) if case % 10 == 0]
    assert row["faults"] == 8 * len(broken) > 0 and row["excluded_cases"] == len(broken)
    assert generation["excluded"] == broken
    assert summary["status"] == "finished" and summary["base"]["faults"] == 16 - summary["base"]["episodes"] > 0
    assert (summary["abandoned_workers"] > 0) == (how == "hang")
    assert took < summary["wall_s"] + 5


def test_nothing_but_faults_stops_before_training_and_says_why(make_config, tmp_path):
    with pytest.raises(StoppedError, match="every one of 16 evaluation episodes failed: ConnectionError: service lost"):
        train(make_config("Broken", **_broken(every=1)), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "stopped" and "service lost" in summary["stopped_because"]
    assert summary["base"] is None and summary["final"] is None and summary["generations"] == 0


def test_training_that_breaks_stops_and_keeps_what_there_was(make_config, tmp_path):
    with pytest.raises(StoppedError, match=r"64 of 64 episodes .* service lost.*what there was is in"):
        train(make_config("Broken", **_broken(every=1, only="train")), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "stopped" and summary["base"]["episodes"] == 16 and summary["final"] is None
    assert [row["kind"] for row in read(tmp_path / "run" / "history.jsonl")] == ["header"]


def test_environment_whose_tasks_fail_is_bad_input(make_config, tmp_path):
    with pytest.raises(EsoptError, match=r"tasks\('train'\) failed with ZeroDivisionError") as fault:
        evaluate(make_config("Broken", env__options={"every": 0}))
    assert fault.value.exit_code == 2
