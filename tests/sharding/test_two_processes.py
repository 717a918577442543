"""Several processes of one run: the history of one process, a death noticed, a run folder that one of them owns."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

KEYS = ["es.generations=2", "eval.episodes=8", "eval.every=0", "log.progress=none", "train.mesh=[4,1]"]


def start(folder, *extra, devices, port=None, process=None):
    """`esopt train smoke`, as the only process or as one of two."""
    command = [sys.executable, "-m", "esopt_jax.cli.main", "train", *extra]
    if process is not None:
        command += ["--coordinator", f"localhost:{port}", "--processes", "2", "--process", str(process)]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = {**os.environ, "XLA_FLAGS": flags, "TMPDIR": str(folder.parent)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_two(folder, *extra):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    return [start(folder, *extra, devices=2, port=port, process=i) for i in range(2)]


def new(folder, *keys):
    return ("smoke", "--run-dir", str(folder), *(part for key in (*KEYS, *keys) for part in ("--set", key)))


def ended(processes, codes):
    ends = [process.communicate(timeout=250) for process in processes]
    assert [process.returncode for process in processes] == codes, [err[-2000:] for _, err in ends]
    return ends


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    ended([start(folder, *new(folder), devices=4)], [0])
    return folder


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together") / "run"
    return folder, ended(start_two(folder, *new(folder)), [0, 0])


def results(folder):
    summary = json.loads((folder / "summary.json").read_text())
    return {key: summary[key] for key in ("base", "final", "digest", "status", "train_episodes")}


def test_two_processes_of_two_devices_write_the_history_of_one_with_four(alone, together):
    folder, _ = together
    assert (folder / "history.jsonl").read_bytes() == (alone / "history.jsonl").read_bytes()
    assert results(folder) == results(alone)
    names = {path.name for path in folder.iterdir()}
    assert names == {path.name for path in alone.iterdir()}


def test_the_second_process_shows_nothing_and_leaves_nothing(together):
    folder, ((shown, _), (nothing, warnings)) = together
    assert "run folder" in shown and nothing == ""
    assert "esopt" not in warnings
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("killed", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_the_death_of_one_ends_the_run_which_then_goes_on_to_the_same_end(together, tmp_path, killed):
    whole, _ = together
    folder = tmp_path / "run"
    two = start_two(folder, *new(folder, "train.checkpoint_every=1"))
    for _ in range(1200):
        if (folder / "history.jsonl").exists() and b"applied" in (folder / "history.jsonl").read_bytes():
            break
        time.sleep(0.1)
    two[killed].send_signal(signal.SIGTERM if killed else signal.SIGKILL)
    _, err = two[0].communicate(timeout=100)
    two[1].communicate(timeout=100)
    if killed:
        assert [process.returncode for process in two] == [3, 3]
        (said,) = [line for line in err.splitlines() if line.startswith("esopt: error")]
        assert "process 1 of 2: stopped by SIGTERM (what there was is in" in said and "--resume" in said
    ended(start_two(folder, "--resume", str(folder)), [0, 0])
    assert (folder / "history.jsonl").read_bytes() == (whole / "history.jsonl").read_bytes()


def test_what_does_not_fit_is_one_line_of_both(tmp_path):
    for (_, err), said in zip(
        ended(start_two(tmp_path / "run", *new(tmp_path / "run", "train.mesh=[3,1]")), [2, 2]),
        ("whose share of the 3 groups is not even", "whose share of the 3 groups is not even"),
        strict=True,
    ):
        (line,) = [line for line in err.splitlines() if line.startswith("esopt: error")]
        assert said in line
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_not_there_is_one_line_of_both(tmp_path):
    two = start_two(tmp_path / "run", "--resume", str(tmp_path / "run"))
    for (_, err), said in zip(ended(two, [2, 2]), ("", "; all processes must see the same folder"), strict=True):
        (line,) = [line for line in err.splitlines() if line.startswith("esopt: error")]
        assert line.endswith("does not exist" + said)
