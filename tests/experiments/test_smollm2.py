"""What `experiments/smollm2/` says, against the records beside it; with `-m slow`, on the real model again."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from smollm2 import smollm2

from esopt_jax.config import config_hash
from esopt_jax.config_reader import load_config
from esopt_jax.training.replay import known_history, replay_file

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "smollm2"
SEEDS = [EXPERIMENT / f"es-{seed}" for seed in range(3)]
CONTROLS = [EXPERIMENT / "shuffled-0"]
RUNS = [*SEEDS, *CONTROLS]


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def held_out(folder):
    return read(folder / "held_out.json")


def check_learning(found):
    """Intervals apart, by better answers as well as by shorter ones."""
    base, final = found["base"], found["final"]
    assert 0.1 < base["reward"] < 0.8
    assert final["ci95"][0] > base["ci95"][1]
    assert found["gain"]["ci95"][0] > 0
    assert final["right"] > base["right"]
    assert final["words"] < base["words"]


@pytest.mark.parametrize("folder", SEEDS, ids=lambda f: f.name)
def test_the_committed_seeds_learn_within_the_time(folder):
    check_learning(held_out(folder))
    assert read(folder / "summary.json")["wall_s"] <= 2400


@pytest.mark.parametrize("folder", CONTROLS, ids=lambda f: f.name)
def test_shuffled_rewards_teach_nothing(folder):
    found = held_out(folder)
    assert found["gain"]["ci95"][0] <= 0, found["gain"]
    assert found["final"]["ci95"][0] <= found["base"]["ci95"][1]


@pytest.mark.parametrize("folder", RUNS, ids=lambda f: f.name)
def test_the_records_are_of_the_run_that_the_settings_name(folder):
    kind, seed = folder.name.split("-")
    control = ["es.control=shuffled_rewards"] if kind == "shuffled" else []
    config = load_config(EXPERIMENT / "oneword.yaml", [f"es.seed={seed}", *control])
    summary, history = read(folder / "summary.json"), known_history(folder / "history.jsonl")
    assert summary["config_hash"] == config_hash(config) == history.config_hashes[-1]
    assert summary["status"] == "finished"
    assert summary["generations"] == config.es.generations == len(history.records) == 30
    assert summary["digest"] == history.digests[-1]
    assert history.header.base_digest == known_history(SEEDS[0] / "history.jsonl").header.base_digest


def test_all_runs_are_judged_from_the_same_base():
    bases = [held_out(folder)["base"] for folder in RUNS]
    assert all(base == bases[0] for base in bases)


@pytest.fixture(scope="module")
def script():
    """`run.py` as a module."""
    spec = importlib.util.spec_from_file_location("smollm2_run", EXPERIMENT / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_records(script):
    table = script.table({folder.name: folder for folder in RUNS})
    assert (EXPERIMENT / "results.md").read_text(encoding="utf-8") == table
    assert table.strip() in (EXPERIMENT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("folder", SEEDS[:1], ids=lambda f: f.name)
def test_the_history_rebuilds_the_tuned_weights(folder):
    found = replay_file(folder / "history.jsonl", base=smollm2())
    assert found.updates == 30
    assert found.verdict in ("equal", "another platform")


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_seed_learns_again(tmp_path):
    smollm2()
    command = [sys.executable, str(EXPERIMENT / "run.py"), "--out", str(tmp_path), "--only", "es-0"]
    subprocess.run(command, check=True)
    check_learning(held_out(tmp_path / "es-0"))
