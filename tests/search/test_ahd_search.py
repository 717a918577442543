"""From a YAML file and the command line to a search: every shipped file, every task, and what a user can get wrong."""

import argparse
import json
import sys
from pathlib import Path

import no_sandbox
import pytest
import tiny_agent

from esopt_jax.cli.ahd_search import add_search_parser, run_search_command
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.search.config import load_ahd_config, to_yaml
from esopt_jax.search.scripted import BODIES
from esopt_jax.search.settings import CYCLE, asked_for, generations
from esopt_jax.search.tasks.registry import TASKS
from esopt_jax.training.jsonl import read

FILES = sorted((Path(__file__).parents[2] / "experiments" / "ahd").glob("*.yaml"))
PUBLISHED = [file for file in FILES if file.stem not in ("scripted", "endpoint", "ours")]


@pytest.fixture(autouse=True)
def own_programs_need_no_sandbox(monkeypatch):
    monkeypatch.setitem(sys.modules, "esopt_jax.tools.sandbox", no_sandbox)


def esopt_ahd_search(*words):
    parser = argparse.ArgumentParser()
    add_search_parser(parser.add_subparsers())
    return run_search_command(parser.parse_args(["search", *map(str, words)]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_shipped_file_is_a_config(file, tmp_path):
    config = load_ahd_config(file)
    (tmp_path / "again.yaml").write_text(to_yaml(config))
    assert load_ahd_config(tmp_path / "again.yaml") == config


def test_the_published_files_have_the_published_numbers():
    assert len(PUBLISHED) == 8
    for file in PUBLISHED:
        config = load_ahd_config(file)
        search, es = config.search, config.es
        budget = int(file.stem.rpartition("-")[2])
        assert (search.budget, search.accounting, search.retries) == (budget, "published", 4)
        assert es.enabled == ("-es-" in file.stem)
        if search.method == "eoh":
            sizes = [asked_for(search, operator) for operator in CYCLE]
            assert sizes == ([10, 10, 10, 10] if budget == 1000 else [10, 10, 30, 30])
            assert generations(search) == 25 and sum(sizes) * 25 == budget
        else:
            assert asked_for(search, "i1") == 20 and generations(search) == budget // 20
        if es.enabled:
            assert (es.sigma, es.sigma_end, es.sigma_schedule, es.alpha) == (1e-3, 0.0, "cosine", 5e-4)
            assert (es.rewards, es.parents, es.common_random_numbers, es.scope) == ("published", 0, False, "full")
        assert (config.writer.temperature, config.writer.top_p, config.writer.max_tokens) == (1.0, 0.98, 768)
        assert config.task.published


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_scripted_search_of_every_task(task, tmp_path):
    out = tmp_path / task
    words = ["--set", f"task.name={task}", "--set", "search.budget=12", "--set", "progress=none", "--run-dir", out]
    assert set(BODIES) == set(TASKS)
    small = {"construct_asp": 12, "aco_bpp": 60, "aco_cvrp": 20, "aco_tsp": 20}.get(task, 0)
    words += ["--set", f"task.size={small}"]
    assert esopt_ahd_search(FILES[0].parent / "scripted.yaml", *words) == 0
    valid = [row for row in read(out / "programs.jsonl") if row["valid"]]
    assert len(valid) >= 8, [row["reason"] for row in read(out / "programs.jsonl")]


def test_a_search_by_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--set", "search.budget=30", "--set", "progress=none"]
    assert esopt_ahd_search(FILES[0].parent / "scripted.yaml", *words) == 0
    out = capsys.readouterr().out
    assert out.startswith("objective 40.") and "after 30 calls: runs/scripted-1/best.py" in out
    whole = (tmp_path / "runs" / "scripted-1" / "programs.jsonl").read_text().splitlines()
    cut = tmp_path / "runs" / "scripted-1"
    (cut / "programs.jsonl").write_text("\n".join(whole[:17]) + "\n" + whole[17][:30])
    assert esopt_ahd_search("--resume", cut) == 0

    def told(lines):
        return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]

    assert told((cut / "programs.jsonl").read_text().splitlines()) == told(whole)


def test_workers_score_the_same(tmp_path):
    found = []
    for workers in (1, 3):
        words = ["--set", f"task.workers={workers}", "--set", "search.budget=20", "--set", "progress=none"]
        esopt_ahd_search(FILES[0].parent / "scripted.yaml", *words, "--run-dir", tmp_path / str(workers))
        found.append([row["objective"] for row in read(tmp_path / str(workers) / "programs.jsonl")])
    assert found[0] == found[1]


@pytest.mark.parametrize("evolves", [False, True])
def test_a_model_of_ours_by_its_path(tmp_path, evolves, capsys):
    """A tiny model babbles: no program is valid, and everything around it works."""
    model = tiny_agent.write_model(tmp_path / "model")
    settings = {
        "writer.backend": "model",
        "writer.model": model,
        "writer.max_tokens": 8,
        "search.budget": 8,
        "search.method": "sample",
        "search.batch_size": 4,
        "es.enabled": evolves,
        "progress": "none",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    out = tmp_path / "run"
    assert esopt_ahd_search(FILES[0].parent / "scripted.yaml", *words, "--run-dir", out) == 0
    assert "no valid program in 8 calls" in capsys.readouterr().out
    assert len({row["text"] for row in read(out / "answers.jsonl")}) > 1
    assert (out / "final").is_dir() == (out / "updates.jsonl").exists() == evolves
    if evolves:
        assert [row["norm"] for row in read(out / "updates.jsonl")] == [0.0, 0.0]
        again, before = load_model(out / "final").params, load_model(model).params
        assert all((again[path] == before[path]).all() for path in before)
        assert esopt_ahd_search("--resume", out) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a YAML file to start a search, or --resume DIR"),
        (["nowhere.yaml"], "config file 'nowhere.yaml' does not exist"),
        (["x.yaml", "--resume", "y"], "give a YAML file to start a search, or --resume DIR"),
        (["--resume", "nowhere"], "'nowhere' holds no search: it has no config.yaml"),
        (["--resume", "nowhere", "--run-dir", "x"], "leave out --run-dir and --set"),
    ],
)
def test_what_a_user_can_get_wrong(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EsoptError) as fault:
        esopt_ahd_search(*words)
    assert message in str(fault.value)


def test_a_task_that_is_not_there():
    with pytest.raises(EsoptError, match="no task 'construct_tps': did you mean 'construct_tsp'"):
        esopt_ahd_search(FILES[0].parent / "scripted.yaml", "--set", "task.name=construct_tps")
