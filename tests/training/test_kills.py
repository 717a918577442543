"""A run that is killed at any moment goes on to the result of one that was not."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from same_run import check_same

from esopt_jax.config import to_yaml
from esopt_jax.config_reader import load_config
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.moments import Moment
from esopt_jax.training.resume import resume

KILLED = Path(__file__).with_name("killed.py")
SIGKILL = -9


@pytest.fixture(scope="module")
def config():
    """The preset `smoke`, with everything that a run can do."""
    return load_config("smoke", ["eval.by_sampling=true", "eval.best_random=true", "eval.episodes=8"])


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """The run that nobody interrupts, and how often it passed each moment."""
    passed: list[Moment] = []
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(config, folder, at=passed.append)
    return folder, passed


@pytest.fixture
def kill(config, tmp_path):
    """Start the run in `tmp_path / "run"`, or go on with it, and be killed."""
    (tmp_path / "config.yaml").write_text(to_yaml(config))

    def until(moment: Moment, nth: int) -> None:
        command = [sys.executable, str(KILLED), str(tmp_path / "config.yaml"), str(tmp_path / "run"), moment, str(nth)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == SIGKILL, done.stderr

    return until


def test_a_run_passes_every_moment(whole, config):
    folder, passed = whole
    generations = config.es.generations
    counts = {moment: passed.count(moment) for moment in Moment}
    assert counts.pop(Moment.COMPILE) == 1
    assert counts.pop(Moment.EVALUATION) == len(read(folder / "evaluations.jsonl")) == 8
    assert counts == dict.fromkeys(counts, generations)
    first = passed.index(Moment.BEFORE_ROW)
    assert passed[first : first + 8] == list(Moment)[2:]


@pytest.mark.parametrize("moment", Moment)
def test_killed_at_each_moment(kill, whole, tmp_path, moment):
    kill(moment, {Moment.COMPILE: 1, Moment.EVALUATION: 4}.get(moment, 3))
    resume(tmp_path / "run")
    check_same(tmp_path / "run", whole[0])


def test_killed_at_the_first_generation_and_while_going_on(kill, whole, tmp_path):
    kill(Moment.HALF_ROW, 1)
    kill(Moment.UPDATE, 1)
    kill(Moment.AFTER_APPLIED, 2)
    resume(tmp_path / "run")
    check_same(tmp_path / "run", whole[0])


@pytest.mark.slow
def test_ten_random_kills(config, whole, tmp_path):
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    draw, kills = random.Random(0), 0
    while kills < 10:
        folder = tmp_path / f"run-{kills}"
        command = [sys.executable, str(KILLED), str(tmp_path / "config.yaml"), str(folder), "never", "1"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started = time.monotonic()
        while not (folder / "history.jsonl").exists():  # before that there is no run
            assert process.poll() is None and time.monotonic() < started + 120, process.communicate()
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 4))
        process.kill()
        if process.wait() == 0:
            continue  # it was faster; not a kill
        process.communicate()
        resume(folder)
        check_same(folder, whole[0])
        kills += 1
