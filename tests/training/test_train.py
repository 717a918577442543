"""One small run from end to end, and what its folder must hold."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.config_reader import load_config
from esopt_jax.core.digest import digest
from esopt_jax.core.master import make_master
from esopt_jax.models.load import load_model
from esopt_jax.rollouts.trajectory import read_trajectories
from esopt_jax.training import loop, metrics
from esopt_jax.training.jsonl import read
from esopt_jax.training.run_folder import RunFolder

SUMMARY = """schema preset method task model config_hash noise_spec fingerprint status es_seed eval_seed generations
population_size train_episodes sampling base final base_by_sampling final_by_sampling best_random wall_s compile_s
rollout_tokens tokens_per_s peak_rss_bytes digest updates_skipped abandoned_workers gain stopped_because
randopt randopt_vote"""
RESULT = {"metric", "mean", "ci95", "episodes", "mean_turns", "invalid_action_rate", "faults"}


@pytest.fixture(scope="module")
def config(make_config):
    return make_config(eval__every=1, eval__by_sampling=True, eval__best_random=True)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    return loop.train(config, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def folder(run):
    return RunFolder(run.folder)


def test_folder_holds_every_file_and_nothing_partial(folder):
    names = {str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file()}
    expected = {"config.yaml", "env.json", "history.jsonl", "metrics.jsonl", "summary.json", "final/model.safetensors"}
    episodes = {
        f"trajectories/{name}.jsonl.gz" for name in ("gen_00000", "gen_00001", "eval_00000", "eval_00001", "eval_00002")
    }
    assert expected | episodes <= names
    assert not [name for name in names if "part" in name]


def test_resolved_config_reads_back_equal(folder, config):
    assert load_config(folder.config) == config


def test_env_names_versions_and_devices_but_no_host(folder):
    import platform

    record = json.loads(folder.env.read_text())
    assert record["backend"] == "cpu" and record["devices"] and record["versions"]["jax"]
    assert record["precision"] == {
        "compute": "float32",
        "master": "float32",
        "matmul": "default",
        "deterministic": False,
    }
    assert platform.node() not in folder.env.read_text()


def test_history_rows_are_in_order_and_hold_what_was_played(folder, config):
    rows = read(folder.history)
    kinds = ["header", "generation", "applied", "generation", "applied"]
    assert [row["kind"] for row in rows] == kinds
    assert [row["generation"] for row in rows[1:]] == [0, 0, 1, 1]
    for row in rows[1::2]:
        assert len(row["fitness"]) == len(row["weights"]) == config.es.population_size
        assert len(set(row["cases"])) == config.rollout.cases
        assert set(row) == {"kind", "generation", "sigma", "alpha", "fitness", "weights", "excluded", "cases"}


def test_digests_are_those_of_base_and_final_weights(folder, run, config):
    rows, specs = read(folder.history), load_model(config.model.path).specs
    for path, mark in ((config.model.path, rows[0]["base_digest"]), (folder.final, rows[-1]["digest"])):
        assert digest(make_master(load_model(path).params, specs=specs, format="float32")) == mark
    assert rows[-1]["digest"] == run.summary["digest"] != rows[0]["base_digest"]


def test_coefficients_are_the_z_scores_of_the_recorded_fitness(folder):
    row = read(folder.history)[1]
    fitness = np.asarray(row["fitness"])
    np.testing.assert_allclose(row["weights"], (fitness - fitness.mean()) / fitness.std(), rtol=1e-6)


def test_summary_has_exactly_the_agreed_keys(folder, run, config):
    assert json.loads(folder.summary.read_text()) == run.summary
    assert set(run.summary) == set(SUMMARY.split())
    for name in ("base", "final", "best_random"):
        assert set(run.summary[name]) == RESULT
    for name in ("base", "final"):
        assert list(run.summary[f"{name}_by_sampling"]) == ["preset", "t0.7_p0.8", "greedy"]
        assert run.summary[f"{name}_by_sampling"]["preset"] == run.summary[name]
        assert run.summary[name]["episodes"] == config.eval.episodes and run.summary[name]["mean_turns"] == 2.0
    assert run.summary["train_episodes"] == 2 * 8 * 8
    assert 0 < run.summary["compile_s"] < run.summary["wall_s"]
    assert run.summary["gain"]["mean"] == pytest.approx(run.summary["final"]["mean"] - run.summary["base"]["mean"])


def test_metrics_are_all_documented(folder):
    documented = set(re.findall(r"[\w/]+", metrics.__doc__))
    for row in read(folder.metrics):
        assert set(row) <= documented


def test_evaluations_share_the_axis_of_generations(folder):
    rows = read(folder.metrics)
    assert [(row["generation"], "eval/solve_rate" in row) for row in rows] == [
        (0, True), (0, False), (1, True), (1, False), (2, True)
    ]  # fmt: skip


def test_trajectories_are_of_the_best_and_the_worst_member(folder):
    row = read(folder.history)[1]
    episodes = list(read_trajectories(folder.trajectories(0)))
    chosen = {int(np.argmax(row["fitness"])), int(np.argmin(row["fitness"]))}
    assert {episode.member for episode in episodes} == chosen
    best = [e.reward for e in episodes if e.member == int(np.argmax(row["fitness"]))]
    assert np.mean(best) == pytest.approx(max(row["fitness"]))
    assert {e.member for e in read_trajectories(folder.held_out(0))} == {-1}


def test_final_weights_differ_in_every_leaf(folder, config):
    base, final = load_model(config.model.path).params, load_model(folder.final).params
    assert base.keys() == final.keys()
    for path in base:
        assert not jnp.array_equal(base[path], final[path]), path


def test_generation_is_on_disk_before_the_update_that_fails(make_config, tmp_path, monkeypatch, folder):
    def broken(*args, **kwargs):
        def update(*args):
            raise RuntimeError("power cut")

        return update

    monkeypatch.setattr(loop, "run_update", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        loop.train(make_config(), tmp_path / "run")
    rows = read(RunFolder(tmp_path / "run").history)
    assert [row["kind"] for row in rows] == ["header", "generation"]
    assert rows[1] == read(folder.history)[1]  # and a run repeats bit for bit
