import subprocess
import sys

import pytest

from esopt_jax.envs.echo import Echo
from esopt_jax.envs.registry import BUILT_IN, make_environment
from esopt_jax.envs.sudoku import Sudoku
from esopt_jax.errors import EsoptError

ENVIRONMENT = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine:
    size: int
    prompt: str = "none"
    def tasks(self, split): return []
    def reset(self, task, seed): ...
    def step(self, state, action): ...

def picky(size, *, colour="red"):
    if size < 0:
        raise ValueError(f"size is {size};\\n it must be 0 or more")
    if size > 9:
        raise RuntimeError("boom")
    return Mine(size)

def anything(**options): return Mine(len(options))
def broken(): return 3
def half(): return type("Half", (), {"tasks": print})()
NUMBER = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(ENVIRONMENT)
    return path


def test_built_in_names():
    assert make_environment("sudoku", prompt="compact", options={"mask": 3}) == Sudoku(prompt="compact", mask=3)
    assert make_environment("echo", prompt="compact", options={"turns": 3}) == Echo(turns=3)  # takes no prompt
    assert make_environment("echo") == Echo()
    assert set(BUILT_IN) == {"sudoku", "echo", "oneword"}


def test_a_factory_in_a_module():
    assert make_environment("esopt_jax.envs.echo:Echo", options={"count": 2}) == Echo(count=2)


def test_a_factory_in_a_file(file):
    env = make_environment(f"{file}:Mine", prompt="compact", options={"size": 2})
    assert (type(env).__name__, env.size, env.prompt) == ("Mine", 2, "compact")
    assert make_environment(f"{file}:picky", prompt="compact", options={"size": 2}).prompt == "none"
    assert make_environment(f"{file}:anything", options={"a": 1, "b": 2}).size == 2


def test_a_relative_path_starts_at_the_working_directory(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert make_environment("mine.py:anything").size == 0


def test_two_files_of_one_name_do_not_mix(file, tmp_path):
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(ENVIRONMENT.replace('"none"', '"other"'))
    one, two = (make_environment(f"{path}:Mine", options={"size": 1}) for path in (file, other))
    assert (one.prompt, two.prompt) == ("none", "other")


def refused(name, **arguments):
    with pytest.raises(EsoptError) as caught:
        make_environment(name, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unknown_names():
    assert "unknown environment 'sudoko'; did you mean 'sudoku'?; your own is package.module:factory" in refused(
        "sudoko"
    )
    assert "allowed: echo, oneword, sudoku" in refused("xyz")
    assert "not of the form" in refused(":factory")
    assert "not of the form" in refused("package.module:")
    assert "no module 'no_such_package.x' is installed" in refused("no_such_package.x:make")
    assert "no module 'esopt_jax.envs.ecko' is installed" in refused("esopt_jax.envs.ecko:Echo")
    assert "esopt_jax.envs.echo has no 'Ecko'; did you mean 'Echo'?" in refused("esopt_jax.envs.echo:Ecko")


def test_bad_files(tmp_path, file):
    assert "does not exist" in refused(str(tmp_path / "none.py") + ":make")
    assert "has no 'Mime'; did you mean 'Mine'?" in refused(f"{file}:Mime")
    assert "has a non-callable 'NUMBER'" in refused(f"{file}:NUMBER")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(7)", "SystemExit: 7"),
    ],
)
def test_files_that_do_not_import(tmp_path, source, message):
    path = tmp_path / "bad.py"
    path.write_text(source)
    assert message in refused(f"{path}:make")
    assert not [name for name in sys.modules if name.startswith("esopt_env_bad")]


def test_a_module_whose_own_import_fails_names_the_missing_one(tmp_path, monkeypatch):
    (tmp_path / "needy.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    assert "importing needy failed with ModuleNotFoundError: No module named 'no_such_package'" in refused("needy:make")


def test_options_are_checked_against_the_signature(file):
    assert "unknown option 'colr': did you mean 'colour'?" in refused(f"{file}:picky", options={"size": 1, "colr": 2})
    assert "unknown option 'a': allowed: size; option 'size' is required" in refused(f"{file}:Mine", options={"a": 1})
    assert "unknown option 'a': it takes none" in refused(f"{file}:broken", options={"a": 1})
    assert "option 'size' is required; set env.options.size" in refused(f"{file}:picky")
    assert "set env.prompt instead" in refused("sudoku", options={"prompt": "compact"})
    assert "unknown option 'maks': did you mean 'mask'?" in refused("sudoku", options={"maks": 3})


def test_values_that_the_factory_refuses(file):
    assert refused(f"{file}:picky", options={"size": -1}).endswith("size is -1; it must be 0 or more")
    assert "TypeError" not in refused(f"{file}:picky", options={"size": "x"})
    assert "could not be built: RuntimeError: boom" in refused(f"{file}:picky", options={"size": 10})
    assert refused("sudoku", options={"size": 5}) == "environment 'sudoku': size is 5; it must be 4 or 9"


def test_results_that_are_no_environment(file):
    assert "returned int, which lacks tasks, reset, step" in refused(f"{file}:broken")
    assert "returned Half, which lacks reset, step" in refused(f"{file}:half")


@pytest.mark.parametrize("bar", ["None", "'high'", "float('nan')", "True"])
def test_a_bar_that_is_no_number(tmp_path, bar):
    body = "tasks = reset = step = lambda *_: None"
    path = tmp_path / "bar.py"
    path.write_text(f"class Bar:\n    {body}\n    success_at = {bar}\n")
    assert "success_at is" in refused(f"{path}:Bar")


def test_environments_do_not_load_jax():
    program = "import sys; from esopt_jax.envs import registry, sudoku, echo, oneword; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
