"""What a user sees: help, versions, one clear line for bad input, and the exit codes."""

import json
import subprocess
import sys

import pytest

import esopt_jax
from esopt_jax.cli import main as cli
from esopt_jax.cli import presets
from esopt_jax.config_reader import preset_names
from esopt_jax.errors import StoppedError


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("command", [[], ["presets"]])
def test_light_commands_import_no_heavy_library(command):
    code = f"""
import json, sys
from esopt_jax.cli.main import main
code = main({command!r})
heavy = [m for m in ('jax', 'numpy', 'transformers', 'matplotlib', 'rich') if m in sys.modules]
print(json.dumps([code, heavy]))
"""
    assert json.loads(_python(code).splitlines()[-1]) == [0, []]


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"esopt {esopt_jax.__version__}"


def test_help_names_every_command_and_the_exit_codes(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    for name in (*cli.COMMANDS, "130", "esopt train quickstart"):
        assert name in out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0 and len(capsys.readouterr().out) > 100


def test_unknown_command_is_bad_input(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["trian"])
    assert stop.value.code == 2 and "invalid choice: 'trian'" in capsys.readouterr().err


def test_presets_are_listed_with_what_they_do(capsys):
    assert cli.main(["presets"]) == 0
    out = capsys.readouterr().out
    for name in preset_names():
        assert name in out
    assert "under 5 minutes" in out


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "esopt: error: interrupted\n"),
        (StoppedError("too many faults"), 3, "esopt: error: too many faults\n"),
    ],
)
def test_exit_codes(fault, code, text, monkeypatch, capsys):
    def run(args):
        raise fault

    monkeypatch.setattr(presets, "run", run)
    assert cli.main(["presets"]) == code
    assert capsys.readouterr().err == text
