"""The table of speed shows what was kept, and nothing else; the other side of a comparison does what it says."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "experiments" / "bench"
PART = {"ours": 3.0, "theirs": 2.0, "ratio": 1.5, "spread": [1.25, 1.75], "ratio_cpu_time": 1.4}


def load(name: str) -> ModuleType:
    """A script of the folder, as a module."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(table: ModuleType, folder: Path, capsys, monkeypatch, *arguments: str) -> list[str]:
    """The lines of the table over the results in `folder`."""
    monkeypatch.setattr(sys, "argv", ["table.py", "--results", str(folder), *arguments])
    table.main()
    return capsys.readouterr().out.splitlines()


def test_a_result_that_was_kept_has_its_figures_and_day_in_the_table(tmp_path, capsys, monkeypatch):
    table = load("table")
    nested = {"name": "update", "unit": "s", **PART, "perturb": {**PART, "ratio": 2.5}}
    table.keep(nested, "cpu", tmp_path)
    kept = json.loads((tmp_path / "update.json").read_text())
    assert kept["hardware"] and len(kept["date"]) == 10
    lines = [line for line in shown(table, tmp_path, capsys, monkeypatch) if "`update.py`" in line]
    assert len(lines) == 2 and all(kept["date"] in line for line in lines)
    assert "1.50 (1.25 to 1.75) | 1.40" in lines[0] and "2.50 (1.25 to 1.75)" in lines[1]


def test_every_case_of_a_part_has_a_line_with_its_sizes(tmp_path, capsys, monkeypatch):
    table = load("table")
    case = {"width": 256, "members": 8, "rows": 4, "decode": PART, "prefill": PART}
    table.keep({"name": "population", "low_rank": [case, {**case, "members": 64}]}, "cpu", tmp_path)
    lines = [line for line in shown(table, tmp_path, capsys, monkeypatch) if "`population.py`" in line]
    assert sum("8 members of rank 4 x 4 rows, width 256" in line for line in lines) == 2
    assert sum("64 members" in line and "prefill" in line for line in lines) == 1


def test_what_was_not_run_says_so_and_a_gpu_does_not_borrow_from_a_cpu(tmp_path, capsys, monkeypatch):
    table = load("table")
    table.keep({"name": "multiturn", "unit": "tokens/s", **PART}, "cpu", tmp_path)
    on_cpu, on_gpu = (shown(table, tmp_path, capsys, monkeypatch, "--device", d) for d in ("cpu", "gpu"))
    assert [line for line in on_cpu if "multiturn" in line and "measured here" in line]
    assert [line for line in on_gpu if "multiturn" in line and "not run here" in line]


def test_a_benchmark_that_fails_keeps_its_last_result(tmp_path, monkeypatch):
    table = load("table")
    table.keep({"name": "broken", **PART}, "cpu", tmp_path)
    before = (tmp_path / "broken.json").read_text()
    monkeypatch.setattr(table, "HERE", tmp_path)
    (tmp_path / "broken.py").write_text("print('{}'); raise SystemExit(1)")
    assert not table.run("broken", "cpu", tmp_path)
    assert (tmp_path / "broken.json").read_text() == before


def test_noise_added_and_taken_away_leaves_the_weights_and_an_update_is_their_weighted_sum():
    torch = pytest.importorskip("torch")
    es = load("torch_es")
    start = torch.arange(6.0).reshape(2, 3)
    weights = {"a": start.clone(), "b": start.clone()}
    drawn = []
    for seed in (1, 2):
        es.add_noise(weights, seed, 1.0)
        drawn.append({name: leaf - start for name, leaf in weights.items()})
        es.add_noise(weights, seed, -1.0)
        torch.testing.assert_close(weights["a"], start)
    assert not torch.equal(drawn[0]["a"], drawn[0]["b"])  # leaves have noise of their own
    es.update(weights, (1, 2), (3.0, -1.0), alpha=0.5)
    for name, leaf in weights.items():
        torch.testing.assert_close(leaf, start + 0.25 * (3 * drawn[0][name] - drawn[1][name]))
    assert es.zscored([0.0, 2.0]) == pytest.approx([-1.0, 1.0])
