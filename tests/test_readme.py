"""The README's code runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from esopt_jax.envs.registry import make_environment
from esopt_jax.rollouts.trajectory import read_trajectories

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def block(marker: str) -> str:
    found = [b for b in BLOCKS if marker in b]
    assert len(found) == 1, f"README must hold exactly one python block with {marker!r}"
    return found[0]


def test_the_algorithm_climbs():
    space: dict = {}
    exec(compile(block("def generation"), "README.md", "exec"), space)
    assert space["fitness"](space["theta"]) > -0.1


def test_your_own_environment_is_short_and_plays(tmp_path):
    source = block("class Guess")
    assert len(source.splitlines()) < 30
    file = tmp_path / "guess.py"
    file.write_text(source)
    env = make_environment(f"{file}:Guess", prompt="compact", options={})
    task = env.tasks("train")[1]
    state, observation = env.reset(task, 0)
    assert observation.messages[0]["content"] == "Guess a digit."
    replies = []
    for action in ("5", "x", "3"):
        state, observation, reward, done, info = env.step(state, action)
        replies.append((observation and observation.messages[0]["content"], reward, done, info["invalid"]))
    assert replies == [("Lower.", 0.0, False, False), ("Not a digit.", 0.0, False, True), (None, 1.0, True, False)]


@pytest.mark.slow
def test_your_own_environment_trains(tmp_path):
    (tmp_path / "guess.py").write_text(block("class Guess"))
    (printed,) = re.findall(r"^esopt (train quickstart --set env\.name=.*)$", README, re.MULTILINE)
    command = [sys.executable, "-m", "esopt_jax.cli.main", *printed.split(), "--run-dir", "out"]
    for setting in ("es.generations=2", "es.population_size=4", "rollout.cases=2", "eval.episodes=4"):
        command += ["--set", setting]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    episodes = list(read_trajectories(tmp_path / "out" / "trajectories" / "eval_00000.jsonl.gz"))
    assert len(episodes) == 4 and not any("ended" in turn.info for episode in episodes for turn in episode.turns)


def test_the_python_interface_runs_as_printed(tmp_path, monkeypatch):
    import esopt_jax

    small = ["es.generations=10", "es.population_size=4", "rollout.cases=2", "eval.episodes=4", "log.progress=none"]
    small += ["eval.by_sampling=false", "eval.best_random=false"]
    whole = esopt_jax.load_config
    monkeypatch.setattr(
        esopt_jax, "load_config", lambda name, overrides: whole(name, [*overrides, *small]), raising=False
    )
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    exec(compile(block("Run.load"), "README.md", "exec"), space)
    assert len(space["rows"]) == 12 and len(space["episodes"]) == 4 and space["weights"]


def test_every_command_is_named():
    from esopt_jax.cli.main import COMMANDS

    assert {command for command in COMMANDS if f"esopt {command}" in README} == set(COMMANDS)


def test_every_named_file_exists():
    for path in re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`((?:notebooks|experiments)/[\w./-]+)`", README):
        assert (ROOT / path).exists(), f"README names {path}, which does not exist"
