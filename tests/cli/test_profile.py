"""`esopt profile`: a table that adds up, a trace of the second generation, and nothing else left."""

import re

import pytest

from esopt_jax.cli.main import main

FEW = ("--set", "es.population_size=4", "--set", "rollout.cases=2", "--set", "rollout.max_turns=2")


def test_shares_add_up_and_a_trace_is_written_while_there_is_one(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert main(["profile", "smoke", *FEW, "--out", str(tmp_path / "trace")]) == 0
    out = capsys.readouterr().out
    shares = {name: int(share) for name, share in re.findall(r"│ (\w+) +│ +[\d.]+ │ +(\d+) % │", out)}
    assert shares.pop("together") == 100 and {"decode", "prefill", "update"} < set(shares)
    assert abs(sum(shares.values()) - 100) <= len(shares) / 2
    assert shares["compile"] == 0
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))
    assert not any((tmp_path / "temporary").iterdir())
    assert main(["profile", "smoke", "--out", str(tmp_path / "trace")]) == 2
    assert "is there already; give a folder that is new or empty" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["quickstrt", "no/such.yaml"])
def test_what_cannot_be_run_cannot_be_profiled(capsys, argument):
    assert main(["profile", argument]) == 2
    assert capsys.readouterr().err.count("\n") == 1
