"""What the README promises of the quickstart, on the real thing: `pytest -m slow tests/test_quickstart.py`."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from esopt_jax.config_reader import load_config
from esopt_jax.core.master import make_master
from esopt_jax.models.load import load_model
from esopt_jax.training.best_random import best_random
from esopt_jax.training.loop import train
from esopt_jax.training.session import load_parts, open_session

EXPERIMENT = Path(__file__).parent.parent / "experiments" / "sudoku" / "quickstart"
SEEDS = range(5)


def summaries(folder: Path, arm: str) -> list[dict]:
    return [json.loads((folder / f"{arm}-{seed}" / "summary.json").read_text()) for seed in SEEDS]


def check_learning(es: dict) -> None:
    """The bars of the quickstart, for one run."""
    best = max(es["base_by_sampling"].values(), key=lambda e: e["mean"])
    assert es["wall_s"] <= 300
    assert es["base"]["episodes"] >= 512 and es["final"]["episodes"] >= 512
    assert es["final"]["mean"] >= best["mean"] + 0.15
    assert es["final"]["ci95"][0] > best["ci95"][1]
    assert es["final"]["mean"] > es["best_random"]["mean"]


def check_controls(controls: list[dict]) -> None:
    """Shuffled rewards teach nothing."""
    gains = [c["gain"] for c in controls]
    assert all(gain["ci95"][0] <= 0 for gain in gains), gains
    assert abs(statistics.mean(gain["mean"] for gain in gains)) < 0.05, gains


def test_the_committed_results_meet_the_bars():
    for es in summaries(EXPERIMENT, "es"):
        check_learning(es)
    check_controls(summaries(EXPERIMENT, "shuffled"))


def test_the_readme_shows_the_committed_results():
    readme = (EXPERIMENT.parents[2] / "README.md").read_text(encoding="utf-8")
    assert (EXPERIMENT / "results.md").read_text(encoding="utf-8").strip() in readme


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """The committed experiment, run again."""
    out = tmp_path_factory.mktemp("quickstart")
    subprocess.run([sys.executable, str(EXPERIMENT / "run.py"), "--out", str(out)], check=True)
    return out


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_five_seeds_learn_and_shuffled_rewards_do_not(repeated):
    for es in summaries(repeated, "es"):
        check_learning(es)
    check_controls(summaries(repeated, "shuffled"))
    print((repeated / "results.md").read_text())


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_es_beats_the_best_random_perturbation_found_with_as_many_episodes(repeated):
    config = load_config("quickstart")
    environment, model = load_parts(config)
    base = make_master(load_model(config.model.path).params, specs=model.specs, format="float32")
    with open_session(config, environment, model) as session:
        found = best_random(session, base, share=1.0)
    print(f"best of {config.es.population_size} perturbations at equal episodes: {found.mean:.3f} {found.ci95}")
    assert summaries(repeated, "es")[0]["final"]["ci95"][0] > found.ci95[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "settings",
    [
        ["es.plan=low_rank", "es.master=split", "model.dtype=bfloat16"],
        ["es.plan=full", "es.master=float32"],
        ["es.antithetic=true"],
    ],
    ids=["low rank, split, bfloat16", "full, float32", "antithetic"],
)
def test_every_plan_improves_in_20_generations(settings, tmp_path):
    cheap = ["eval.by_sampling=false", "eval.best_random=false", "eval.episodes=64", "log.trajectories=none"]
    train(load_config("quickstart", ["es.generations=20", *cheap, *settings]), tmp_path / "run")
    rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    fitness = [row["fitness/mean"] for row in rows if "fitness/mean" in row]
    assert statistics.mean(fitness[-3:]) > statistics.mean(fitness[:3])
