import json

import numpy as np
import pytest

from esopt_jax.config import Config, config_hash
from esopt_jax.training.history import HistoryWriter, applied_row, generation_row, header_row
from esopt_jax.training.jsonl import read

_ROW = {"sigma": 0.1, "alpha": 0.2, "excluded": [], "cases": [0]}


def test_float32_values_survive_the_file_exactly(tmp_path):
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    values[:3] = np.float32(1) / 3, np.finfo(np.float32).tiny, np.finfo(np.float32).smallest_subnormal
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        history.write(generation_row(0, fitness=values, weights=-values, **_ROW))
    (row,) = read(tmp_path / "history.jsonl")
    np.testing.assert_array_equal(np.asarray(row["fitness"], np.float32).view(np.uint32), values.view(np.uint32))
    np.testing.assert_array_equal(np.asarray(row["weights"], np.float32).view(np.uint32), (-values).view(np.uint32))


def test_rows_are_on_disk_when_write_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        history.write(applied_row(0, "ab"))
        assert len(synced) == 1
        assert read(tmp_path / "history.jsonl") == [{"kind": "applied", "generation": 0, "digest": "ab"}]


def test_header_holds_all_that_a_replay_needs():
    config = Config()
    row = header_row(config, base_digest="d", fingerprint="f")
    assert row["es"]["sigma"] == config.es.sigma and row["es"]["master"] == "float32"
    assert set(row["es"]) == set(vars(config.es))
    assert row["config_hash"] == config_hash(config) and row["mesh"] == [1, 1] and row["noise_spec"] == 1
    json.dumps(row)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_json_cannot_say_is_refused_and_leaves_no_half_line(tmp_path, bad):
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        with pytest.raises(ValueError, match="not JSON compliant"):
            history.write(generation_row(0, fitness=np.array([bad]), weights=np.zeros(1), **_ROW))
        history.write(applied_row(0, "ab"))
    assert len(read(tmp_path / "history.jsonl")) == 1


def test_an_existing_history_is_never_overwritten(tmp_path):
    (tmp_path / "history.jsonl").write_text("kept\n")
    with pytest.raises(FileExistsError):
        HistoryWriter(tmp_path / "history.jsonl")
