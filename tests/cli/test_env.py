"""`esopt env check` and `esopt env new`, as a user runs them."""

import json
import subprocess
import sys
import time

import pytest

import esopt_jax
from esopt_jax.cli.main import main
from esopt_jax.config_reader import load_config

GOOD = """
import time
from esopt_jax.types import Observation, Step, Task


class Good:
    def __init__(self, size=3, prompt="none", wait_s=0.0):
        if wait_s > 1:
            time.sleep(wait_s)
        self.size, self.wait_s, self.prompt = size, wait_s, prompt

    def tasks(self, split):
        print("noise")
        return [Task(f"{split}-{i}") for i in range(self.size)]

    def reset(self, task, seed):
        return 0, Observation(({"role": "user", "content": self.prompt},))

    def step(self, state, action):
        time.sleep(self.wait_s)
        return Step(state + 1, None, 1.0, True, {})


class Faulty(Good):
    def step(self, state, action):
        return Step(state, None, "1", True, {})


class Hangs(Good):
    def step(self, state, action):
        time.sleep(3600)


class Endless(Good):
    def step(self, state, action):
        return Step(state + 1, Observation(({"role": "user", "content": "again"},)), 0.0, False, {})


def exits():
    raise SystemExit(7)
"""


@pytest.fixture
def esopt(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with `mine.py`; returns the exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(GOOD)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capsys.readouterr()

    return run


def rows(out: str) -> dict[str, str]:
    """Check -> status."""
    return {line.split()[1]: line.split()[0] for line in out.partition("\n\n")[0].splitlines()}


def test_a_good_environment_is_one_ok_a_line(esopt):
    code, out, err = esopt("env", "check", "mine.py:Good")
    assert code == 0 and set(rows(out).values()) == {"ok"} and len(rows(out)) == 11
    assert out.endswith("\n\nmine.py:Good: 11 ok\n")
    assert "noise" in err  # what the environment prints is not lost, and not among the checks


def test_a_failure_is_named_and_the_exit_code_is_2(esopt):
    code, out, err = esopt("env", "check", "mine.py:Faulty")
    assert code == 2 and "Traceback" not in out + err
    assert {name for name, status in rows(out).items() if status == "FAIL"} == {"step"}
    assert "FAIL     step        step(state, '') gave the reward '1'; it must be a finite number\n" in out
    assert out.endswith("mine.py:Faulty: 6 ok, 1 FAIL\n")


def test_a_warning_is_no_failure(esopt):
    code, out, _ = esopt("env", "check", "mine.py:Endless", "--turns", "5", "--episodes", "1")
    assert code == 0 and rows(out)["end"] == "warning" and "had not ended after 5 turns" in out
    assert out.endswith("10 ok, 1 warning\n")


@pytest.mark.parametrize(("factory", "code", "passed"), [("Good", 0, True), ("Faulty", 2, False)])
def test_json_is_one_object(esopt, factory, code, passed):
    found, out, _ = esopt("env", "check", f"mine.py:{factory}", "--json")
    report = json.loads(out)
    assert (found, report["environment"], report["passed"]) == (code, f"mine.py:{factory}", passed)
    assert [set(check) for check in report["checks"]] == [{"check", "status", "detail"}] * 11


def test_options_are_read_as_yaml_and_reach_the_factory(esopt):
    code, out, _ = esopt("env", "check", "mine.py:Good", "--option", "size=7")
    assert code == 0 and "7 to train on, 7 held out" in out
    masks = ("--option", "mask=[1, 6]", "--option", "train_tasks=5", "--option", "eval_tasks=4", "--prompt", "compact")
    code, out, _ = esopt("env", "check", "sudoku", *masks)
    assert code == 0 and "5 to train on, 4 held out" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sudoko"], "unknown environment 'sudoko'; did you mean 'sudoku'?"),
        (["missing.py:Good"], "file 'missing.py' does not exist"),
        (["mine.py:Goof"], "has no 'Goof'; did you mean 'Good'?"),
        (["mine.py:exits"], "could not be built: SystemExit: 7"),
        (["mine.py:Good", "--option", "sise=3"], "unknown option 'sise': did you mean 'size'?"),
        (["mine.py:Good", "--option", "size"], "--option 'size' is not of the form key=value"),
        (["mine.py:Good", "--option", "=3"], "--option '=3' is not of the form key=value"),
        (["sudoku", "--prompt", "compct"], "did you mean 'compact'?"),
        (["mine.py:Good", "--timeout-s", "0"], "--timeout-s is 0; it must be above 0"),
        (["mine.py:Good", "--timeout-s", "nan"], "--timeout-s is nan; it must be above 0"),
        (["mine.py:Good", "--episodes", "0"], "--episodes is 0; it must be at least 1"),
        (["mine.py:Good", "--turns", "-1"], "--turns is -1; it must be at least 1"),
        (["mine.py:Good", "--option", "wait_s=5", "--timeout-s", "0.2"], "building had not returned after 0.2 s"),
    ],
)
def test_bad_input_is_one_line(esopt, words, message):
    code, out, err = esopt("env", "check", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("esopt: error: ") and message in err


def test_the_time_limit_is_per_call(esopt):
    code, out, _ = esopt("env", "check", "mine.py:Good", "--option", "wait_s=0.01", "--timeout-s", "5")
    assert code == 0 and rows(out)["time"] == "ok"
    code, out, _ = esopt("env", "check", "mine.py:Good", "--option", "wait_s=0.5", "--timeout-s", "0.1")
    assert code == 2 and rows(out)["time"] == "FAIL"


def test_the_process_ends_although_a_call_hangs_and_loads_no_jax(esopt):
    program = """
import sys
from esopt_jax.cli.main import main
code = main(["env", "check", "mine.py:Hangs", "--timeout-s", "0.3"])
print([name for name in ("jax", "numpy", "transformers") if name in sys.modules])
sys.exit(code)
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and time.monotonic() - started < 20
    assert "step(state, '') had not returned after 0.3 s" in done.stdout and done.stdout.endswith("[]\n")


# --- new --------------------------------------------------------------------------------------------------------------


def commands(out: str) -> list[list[str]]:
    """The commands that were printed, as words."""
    return [line.partition("#")[0].split() for line in out.splitlines() if line.startswith("  esopt ")]


@pytest.mark.parametrize("folder", [(), ("--dir", "games/new")])
def test_what_new_writes_passes_the_check_and_loads(esopt, tmp_path, folder):
    code, out, _ = esopt("env", "new", "my_game", *folder)
    where = tmp_path.joinpath(*folder[1:])
    assert code == 0 and {"my_game.py", "my_game.yaml"} <= {path.name for path in where.iterdir()}
    check, score, train = commands(out)
    assert (check[1:3], score[1], train[1]) == (["env", "check"], "eval", "train")
    code, out, _ = esopt(*check[1:])
    assert code == 0 and set(rows(out).values()) == {"ok"}
    assert load_config(score[2]) == load_config(train[2])
    config = load_config(train[2])
    assert (config.env.name, config.preset, config.env.options) == (check[-1], "my_game", {"blanks": 2})


def test_what_new_writes_holds_no_placeholder(esopt, tmp_path):
    esopt("env", "new", "chess960")
    code, config = ((tmp_path / f"chess960.{kind}").read_text() for kind in ("py", "yaml"))
    assert "class Chess960:" in code and "chess960.py:Chess960" in config
    assert not any(word in (code + config).lower() for word in ("yourgame", "your_game"))
    assert len(code.splitlines()) < 60


def test_nothing_is_replaced(esopt, tmp_path):
    for present, absent in ((".py", ".yaml"), (".yaml", ".py")):
        (tmp_path / f"mine_too{present}").write_text("mine")
        code, out, err = esopt("env", "new", "mine_too")
        assert (code, out) == (2, "") and f"mine_too{present}' exists and is not replaced" in err
        assert (tmp_path / f"mine_too{present}").read_text() == "mine" and not (tmp_path / f"mine_too{absent}").exists()
        (tmp_path / f"mine_too{present}").unlink()


@pytest.mark.parametrize("name", ["My", "my-game", "2048", "a b", "../up", "class", "none", "Ünder", "a.py", ""])
def test_names_that_are_none(esopt, tmp_path, name):
    code, _, err = esopt("env", "new", name)
    assert code == 2 and "cannot name an environment; use lower-case letters" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_names_that_would_hide_an_import(esopt):
    code, _, err = esopt("env", "new", "task")
    assert code == 2 and "would hide esopt_jax.types.Task; choose another name, such as my_task" in err


def test_a_folder_that_cannot_be_written(esopt):
    code, _, err = esopt("env", "new", "game", "--dir", "mine.py/below")
    assert (code, err.count("\n")) == (2, 1) and "cannot write to 'mine.py/below'" in err


def test_what_new_writes_trains(esopt, tmp_path):
    esopt("env", "new", "game")
    small = ("es.population_size=4", "es.generations=2", "rollout.cases=4", "eval.episodes=8", "log.progress=none")
    run = esopt_jax.train(load_config("game.yaml", small), tmp_path / "run")
    assert run.summary["generations"] == 2 and run.summary["final"]["episodes"] == 8
    rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    invalid = [row["invalid_action_rate"] for row in rows if "invalid_action_rate" in row]
    assert len(invalid) == 2 and max(invalid) < 0.2  # the shipped model speaks the language of the template


@pytest.mark.slow
def test_what_new_writes_can_be_learnt(esopt, tmp_path):
    esopt("env", "new", "game")
    run = esopt_jax.train(load_config("game.yaml", ["log.progress=none"]), tmp_path / "run")
    assert run.summary["base"]["mean"] < 0.35 and run.summary["final"]["ci95"][0] > run.summary["base"]["ci95"][1] + 0.2
