"""What is written can be read back to the bit; what no run can have written is refused, with the line named."""

import json

import numpy as np
import pytest
from histories import make_rows, record, write_rows

from esopt_jax.config import Config, ESConfig, config_hash
from esopt_jax.errors import EsoptError
from esopt_jax.training.history import HistoryWriter, applied_row, generation_row, header_row, resumed_row
from esopt_jax.training.history_reader import read_history
from esopt_jax.training.jsonl import read


def test_float32_values_survive_the_file_exactly(tmp_path):
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    values[:3] = np.float32(1) / 3, np.finfo(np.float32).tiny, np.finfo(np.float32).smallest_subnormal
    es = ESConfig(population_size=1000, shaping="none")
    rows = make_rows(0, es=es)
    rows.append(generation_row(record(0, fitness=values, es=es)))
    (found,) = read_history(write_rows(tmp_path / "history.jsonl", rows)).records
    np.testing.assert_array_equal(found.fitness.view(np.uint32), values.view(np.uint32))
    np.testing.assert_array_equal(found.weights.view(np.uint32), values.view(np.uint32))


def test_rows_are_on_disk_when_write_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        history.write(applied_row(0, "ab"))
        assert len(synced) == 1
        assert read(tmp_path / "history.jsonl") == [{"kind": "applied", "generation": 0, "digest": "ab"}]
        history.write_generation(record(1))
        assert len(synced) == 2
        assert read(tmp_path / "history.jsonl")[1] == generation_row(record(1))


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
            history.write_generation(record(0, fitness=np.array([bad])))
        history.write(applied_row(0, "ab"))
    assert len(read(tmp_path / "history.jsonl")) == 1


def test_an_existing_history_is_never_overwritten(tmp_path):
    (tmp_path / "history.jsonl").write_text("kept\n")
    with pytest.raises(FileExistsError):
        HistoryWriter(tmp_path / "history.jsonl")


def test_what_was_written_is_read_back(tmp_path):
    rows = make_rows(3)
    history = read_history(write_rows(tmp_path / "history.jsonl", rows))
    assert history.header.es == Config().es.__class__(**rows[0]["es"]) and not history.partial
    assert [generation_row(found) for found in history.records] == rows[1::2]
    assert list(history.digests) == [row["digest"] for row in rows[2::2]]
    assert history.platforms == ("f" * 16,) * 3 and history.size == (tmp_path / "history.jsonl").stat().st_size


def test_a_file_cut_anywhere_gives_the_complete_rows_before(tmp_path):
    rows = make_rows(2)
    text = write_rows(tmp_path / "whole.jsonl", rows).read_bytes()
    cut = tmp_path / "cut.jsonl"
    for size in range(len(text)):
        cut.write_bytes(text[:size])
        history, complete = read_history(cut), text[:size].count(b"\n")
        if not complete:
            assert history is None
            continue
        assert (len(history.records), len(history.digests)) == (complete // 2, (complete - 1) // 2)
        assert history.partial == (not text[:size].endswith(b"\n"))
        assert text[: history.size].endswith(b"\n") and text[: history.size].count(b"\n") == complete


def test_going_on_cuts_off_the_partial_line_and_appends(tmp_path):
    path = write_rows(tmp_path / "history.jsonl", make_rows(1))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "genera' + b"x" * 2000)  # more than what is written over it
    with HistoryWriter(path, keep=read_history(path).size) as history:
        history.write_generation(record(1))
    assert path.read_bytes() == whole + json.dumps(generation_row(record(1))).encode() + b"\n"


def test_a_resumed_row_changes_the_platform_of_what_follows(tmp_path):
    rows = make_rows(3)
    rows.insert(4, resumed_row(Config(), fingerprint="e" * 16))  # between a generation and its digest
    history = read_history(write_rows(tmp_path / "history.jsonl", rows))
    assert history.platforms == ("f" * 16, "e" * 16, "e" * 16) and history.fingerprint == "e" * 16
    assert history.config_hashes == (rows[0]["config_hash"], config_hash(Config()))


BAD = {
    "no header": (0, lambda row: {**row, "kind": "generation"}, "begins with its 'header'"),
    "other schema": (0, lambda row: {**row, "schema": 99}, "schema is 99; it must be 1"),
    "other noise": (0, lambda row: {**row, "noise_spec": 2}, "noise_spec is 2; it must be 1"),
    "es incomplete": (0, lambda row: {**row, "es": {"seed": 1}}, "es is not the whole section"),
    "es invalid": (0, lambda row: {**row, "es": {**row["es"], "sigma": -1}}, "es.sigma is -1"),
    "bad digest": (0, lambda row: {**row, "base_digest": "xyz"}, "base_digest is 'xyz'; it must be 32 hex digits"),
    "mesh of three": (0, lambda row: {**row, "mesh": [1, 1, 1]}, "mesh is"),
    "key missing": (1, lambda row: {k: v for k, v in row.items() if k != "alpha"}, "lacks ['alpha']"),
    "key unknown": (1, lambda row: {**row, "beta": 1}, "unknown keys ['beta']"),
    "generation skipped": (3, lambda row: {**row, "generation": 2}, "generation is 2; it must be 1"),
    "generation as bool": (3, lambda row: {**row, "generation": True}, "generation is True"),
    "too few weights": (1, lambda row: {**row, "weights": row["weights"][1:]}, "it must be 4 float32 values"),
    "weight no float32": (1, lambda row: {**row, "weights": [0.1, 0, 0, 0]}, "it must be 4 float32 values"),
    "weight too large": (1, lambda row: {**row, "weights": [1e39, 0, 0, 0]}, "it must be 4 float32 values"),
    "weight as text": (1, lambda row: {**row, "weights": ["1", 0, 0, 0]}, "it must be 4 float32 values"),
    "sigma negative": (1, lambda row: {**row, "sigma": -0.1}, "sigma is -0.1"),
    "sigma off schedule": (1, lambda row: {**row, "sigma": 0.5}, "sigma is 0.5, the schedule says 0.001"),
    "weights do not follow": (
        1,
        lambda row: {**row, "weights": row["weights"][::-1]},
        "do not follow from its fitness",
    ),
    "fitness changed": (3, lambda row: {**row, "fitness": [9.0, 0, 0, 0]}, "do not follow from its fitness"),
    "mesh of nothing": (0, lambda row: {**row, "mesh": [0, 1]}, "mesh is [0, 1]"),
    "case negative": (1, lambda row: {**row, "cases": [-1]}, "cases is [-1]"),
    "applied twice": (3, lambda row: applied_row(0, "0" * 32), "it must be 'generation' here"),
    "applied lost": (2, lambda row: generation_row(record(1)), "it must be 'applied' here"),
    "no kind": (2, lambda row: {}, "kind is None"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_row_is_an_error_that_names_the_line(tmp_path, fault):
    line, change, message = BAD[fault]
    rows = make_rows(2)
    rows[line] = change(rows[line])
    with pytest.raises(EsoptError) as error:
        read_history(write_rows(tmp_path / "history.jsonl", rows))
    assert f"history.jsonl, line {line + 1}: " in str(error.value) and message in str(error.value)


@pytest.mark.parametrize(
    "text", [b"nonsense", b"[1]", b"\xff\xfe", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"", b"[" * 9999]
)
def test_a_middle_line_that_is_no_object_is_an_error_that_names_the_line(tmp_path, text):
    path = write_rows(tmp_path / "history.jsonl", make_rows(2))
    lines = path.read_bytes().split(b"\n")
    lines[2] = text
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(EsoptError, match=r"history\.jsonl, line 3"):
        read_history(path)
