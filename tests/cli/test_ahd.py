"""`esopt ahd`, as a user runs it."""

import contextlib
import json
import subprocess
import sys

import numpy as np
import pytest
from run_here import NoSandbox
from without import needs

from esopt_jax.cli import ahd
from esopt_jax.cli.main import main
from esopt_jax.search.tasks.registry import TASKS

NEAREST = "def select_next_node(here, goal, near, distances):\n    return near[0]\n"


@pytest.fixture
def score(tmp_path, monkeypatch, capsys):
    """Score a program; returns the exit code, standard output and standard error."""
    monkeypatch.setattr(ahd, "_sandbox", lambda args: contextlib.nullcontext(NoSandbox()))
    program = tmp_path / "program.py"

    def run(task, code, *options):
        program.write_text(code)
        exit_code = main(["ahd", "score", task, str(program), *options])
        return exit_code, *capsys.readouterr()

    return run


def test_tasks_are_listed_for_people_and_for_programs(capsys):
    assert main(["ahd", "tasks"]) == 0
    text = capsys.readouterr().out
    assert main(["ahd", "tasks", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [*listed] == [*TASKS]
    for name, task in TASKS.items():
        assert name in text and task.signature in text
        assert listed[name]["sizes"]["train"] == [*task.sizes["train"]]


def test_listing_needs_no_jax():
    code = """
import sys
from esopt_jax.cli.main import main
main(["ahd", "tasks"])
sys.exit("jax" in sys.modules)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("options", [(), ("--published",)])
def test_a_valid_program_is_scored(score, options):
    exit_code, out, _ = score("construct_tsp", NEAREST, *options)
    result = json.loads(out)
    assert exit_code == 0
    assert result.pop("seconds") > 0
    assert result.pop("objective") == pytest.approx(7.00437, abs=5e-6)
    expected = {"task": "construct_tsp", "direction": "min", "valid": True, "reason": None, "instances": 64}
    assert result == expected


def test_an_invalid_program_is_a_result_too(score):
    exit_code, out, _ = score("construct_tsp", NEAREST.replace("near[0]", "0"), "--size", "5", "--split", "val")
    result = json.loads(out)
    assert exit_code == 0
    assert (result["objective"], result["valid"], result["instances"]) == (None, False, 0)
    assert "returned 0, which is not an unvisited city" in result["reason"]


def test_instances_come_from_a_file(score, tmp_path):
    square = np.array([[[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]])
    np.save(tmp_path / "square.npy", square)
    _, out, _ = score(
        "construct_tsp", NEAREST, "--data", str(tmp_path / "square.npy"), "--published", "--split", "test"
    )
    assert json.loads(out)["objective"] == 4.0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("construct_tps", NEAREST), "did you mean 'construct_tsp'"),
        (("construct_tsp", NEAREST, "--size", "2"), "a tour of 2 cities"),
        (("construct_tsp", NEAREST, "--data", "missing.npy"), "missing.npy is no file of an array"),
        (("construct_tsp", NEAREST, "--cpu-s", "0"), "--cpu-s is 0"),
        (("aco_tsp", NEAREST, "--published", "--split", "val"), "published val sets are not known"),
    ],
)
def test_bad_input_is_one_line(score, options, error):
    exit_code, out, err = score(*options)
    assert (exit_code, out) == (2, "")
    assert error in err and err.count("\n") == 1


def test_a_program_that_cannot_be_read_is_bad_input(tmp_path, capsys):
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'")
    for name in ("latin.py", "missing.py", "."):
        assert main(["ahd", "score", "construct_tsp", str(tmp_path / name)]) == 2
        assert "cannot be read" in capsys.readouterr().err


@needs("sandbox")
def test_programs_run_in_the_sandbox(tmp_path, capsys):
    results = []
    for code in (NEAREST, f"open({str(tmp_path / 'made')!r}, 'w')\n{NEAREST}", "while True: pass"):
        (tmp_path / "program.py").write_text(code)
        assert main(["ahd", "score", "construct_tsp", str(tmp_path / "program.py"), "--cpu-s", "5"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["objective"] == pytest.approx(7.00437, abs=5e-6)
    assert [result["valid"] for result in results] == [True, False, False]
    assert all(result["reason"] for result in results[1:])
    assert not (tmp_path / "made").exists()
