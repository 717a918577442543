"""`train --resume`, `train --seeds`, `eval` on a run, `replay`: what they print and how they end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import in_a_terminal
import pytest
import tiny_agent

from esopt_jax.cli.main import main


@pytest.fixture(scope="module")
def arguments(workplace, tmp_path_factory):
    """`train FILE --set ...` of a run that takes seconds."""
    path = tmp_path_factory.mktemp("configs") / "tiny.yaml"
    path.write_text("description: a test\n")
    settings = tiny_agent.settings(workplace / "model", f"{workplace / 'toys.py'}:Even", log__progress="none")
    return ["train", str(path), *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


@pytest.fixture(scope="module")
def run(arguments, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main([*arguments, "--run-dir", str(folder)]) == 0
    return folder


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def printed(capsys, *words):
    """Exit code, standard output, and the one line of an error."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    errors = [line for line in err.splitlines() if line.startswith("esopt: error: ")]
    assert len(errors) == (code != 0)
    return code, out, "".join(errors)


def test_evaluating_a_run_prints_its_final(capsys, run):
    code, out, _ = printed(capsys, "eval", run, "--json")
    final = json.loads((run / "summary.json").read_text())["final"]
    assert code == 0 and json.loads(out) == {"updates": 2, "exact": True, **final}
    code, out, _ = printed(capsys, "eval", run, "--json", "--generation", "0")
    base = json.loads((run / "summary.json").read_text())["base"]
    assert code == 0 and json.loads(out) == {"updates": 0, "exact": True, **base}


def test_replay_prints_the_digest(capsys, run, workplace, tmp_path):
    digest = json.loads((run / "summary.json").read_text())["digest"]
    code, out, _ = printed(capsys, "replay", run)
    assert code == 0 and out == f"2 updates replayed, digest {digest}: equal to the run's, bit for bit\n"
    shared = shutil.copy(run / "history.jsonl", tmp_path / "shared.jsonl")
    code, out, _ = printed(capsys, "replay", shared, "--base", workplace / "model", "--generation", "1", "--json")
    assert code == 0 and json.loads(out)["verdict"] == "equal" and json.loads(out)["updates"] == 1


def test_what_cannot_be_replayed_is_one_line(capsys, copy, tmp_path):
    assert "needs --base" in printed(capsys, "replay", copy / "history.jsonl")[2]
    assert "needs --base" in printed(capsys, "replay", tmp_path / "nothing")[2]
    assert "is no run folder" in printed(capsys, "replay", tmp_path)[2]
    (copy / "history.jsonl").write_text("")
    assert "holds no complete header" in printed(capsys, "replay", copy)[2]


def test_a_finished_run_is_refused_and_can_be_extended(capsys, copy):
    code, _, err = printed(capsys, "train", "--resume", copy)
    assert code == 2 and "is finished after 2 generations" in err
    code, out, _ = printed(capsys, "train", "--resume", copy, "--set", "es.generations=3")
    assert code == 0 and "final, preset" in out and (copy / "reward_curve.png").exists()
    assert json.loads((copy / "summary.json").read_text())["generations"] == 3


def test_start_and_resume_exclude_each_other(capsys, run):
    assert printed(capsys, "train", "quickstart", "--resume", run)[2].endswith("--resume DIR to go on with one")
    assert printed(capsys, "train")[2].endswith("--resume DIR to go on with one")
    assert "leave out --run-dir and --seeds" in printed(capsys, "train", "--resume", run, "--seeds", "1")[2]


def test_seeds_give_one_table(capsys, arguments, tmp_path):
    code, out, _ = printed(
        capsys, *arguments, "--set", "es.generations=1", "--seeds", "0..1", "--run-dir", tmp_path / "s"
    )
    assert code == 0 and "over 2 seeds" in out and "gain" in out
    found = json.loads((tmp_path / "s" / "aggregate.json").read_text())
    assert found["seeds"] == [0, 1] and len(found["gain"]["values"]) == 2
    assert (tmp_path / "s" / "seed-1" / "reward_curve.png").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 3), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_with_a_line_that_says_how_to_go_on(arguments, capsys, tmp_path, number, code):
    folder = tmp_path / "run"
    command = [sys.executable, in_a_terminal.__file__, *arguments, "--set", "es.generations=100000"]
    process = subprocess.Popen([*command, "--run-dir", str(folder)], stderr=subprocess.PIPE, text=True, env=os.environ)
    for _ in range(1200):
        if (folder / "history.jsonl").exists() and b"applied" in (folder / "history.jsonl").read_bytes():
            break
        time.sleep(0.1)
    second, _, err = printed(capsys, "train", "--resume", folder)
    assert second == 2 and f"is in use by process {process.pid}" in err
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code and "Traceback" not in err
    reason = "stopped by SIGTERM" if number == signal.SIGTERM else "interrupted"
    last = [line for line in err.splitlines() if line.startswith("esopt: error: ")]
    assert last == [f"esopt: error: {reason} (what there was is in {str(folder)!r}; --resume goes on with it)"]
    assert json.loads((folder / "summary.json").read_text())["status"] == "stopped"
