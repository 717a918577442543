"""`esopt watch` beside a run that somebody else writes, without a terminal and in one."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time

import in_a_terminal
import pytest

from esopt_jax.cli.main import main
from esopt_jax.config import to_yaml
from esopt_jax.config_reader import from_dict

_SUMMARY = {"status": "running", "stopped_because": None}


def _row(generation):
    return {"generation": generation, "fitness/mean": 0.5, "fitness/best": 1.0, "sigma": 0.1, "tokens_per_s": 1000.0}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(from_dict({"preset": "toy", "es": {"generations": 3}})))
    (folder / "summary.json").write_text(json.dumps(_SUMMARY))
    return folder


def _append(folder, text):
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write(text)


def _end(folder, **summary):
    partial = folder / "partial"
    partial.write_text(json.dumps({**_SUMMARY, **summary}))
    partial.replace(folder / "summary.json")


def _watch(folder, **streams):
    command = [sys.executable, "-W", "error", in_a_terminal.__file__, "watch", str(folder), "--interval-s", "0.05"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **streams)


def test_a_line_for_whatever_is_new_until_the_run_ends(run):
    with _watch(run, stdout=subprocess.PIPE) as watch:
        lines = iter(watch.stdout.readline, "")
        assert next(lines) == "toy: running, generation 0/3\n"
        line = json.dumps(_row(0))
        _append(run, line[:20])
        time.sleep(0.2)
        _append(run, line[20:] + "\n")
        assert next(lines) == "generation 1/3  fitness 0.500  best 1.000  sigma 0.1  1.0k tokens/s\n"
        _append(run, json.dumps({"generation": 1, "eval/solve_rate": 0.25}) + "\n")
        assert next(lines).startswith("after 1 updates: held-out solve rate 0.250")
        _end(run, status="stopped", stopped_because="the disk is full")
        assert [*lines] == [
            "toy: stopped, generation 1/3: the disk is full\n",
            "1.0k tokens/s, 0 faults\n",
        ]
        assert watch.wait(10) == 0 and watch.stderr.read() == ""


def test_ctrl_c_ends_it_without_complaint(run):
    with _watch(run, stdout=subprocess.PIPE) as watch:
        watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        assert watch.wait(10) == 0 and watch.stderr.read() == ""


def test_a_folder_that_is_removed_meanwhile_is_one_line(run):
    with _watch(run, stdout=subprocess.PIPE) as watch:
        watch.stdout.readline()
        shutil.move(run, run.with_name("elsewhere"))
        assert watch.wait(10) == 2
        error = watch.stderr.read()
        assert error.count("\n") == 1 and "was removed while it was watched" in error


def test_live_view_in_a_terminal(run):
    ours, theirs = pty.openpty()
    _append(run, json.dumps(_row(0)) + "\n")
    with _watch(run, stdout=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "90"}) as watch:
        os.close(theirs)
        shown = b""
        while b"generation 1/3" not in shown:
            shown += os.read(ours, 4096)
        _append(run, json.dumps(_row(1)) + "\n")
        _end(run, status="finished")
        try:
            while more := os.read(ours, 4096):
                shown += more
        except OSError:  # the terminal was hung up by its last user
            pass
        assert watch.wait(10) == 0 and watch.stderr.read() == ""
    os.close(ours)
    text = shown.decode()
    assert "toy: finished, generation 2/3" in text and "tokens/s" in text and "\x1b[?25h" in text


def test_once(run, capsys):
    _append(run, json.dumps(_row(0)) + "\n")
    assert main(["watch", str(run), "--once"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "toy: running, generation 1/3" and "1.0k tokens/s, 0 faults" in out


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf"])
def test_an_interval_that_is_none(run, capsys, interval):
    assert main(["watch", str(run), "--interval-s", interval]) == 2
    assert "must be a number of seconds above 0" in capsys.readouterr().err


def test_what_is_no_run(tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    for path, message in ((tmp_path, "is no run folder"), (tmp_path / "none", "does not exist")):
        assert main(["watch", str(path)]) == 2
        assert message in capsys.readouterr().err
