"""Whatever is in the file, the reader returns a history that a run can have written, or an error of one line."""

import json
import re

import numpy as np
import pytest
from histories import POPULATION, make_rows, write_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esopt_jax.errors import EsoptError
from esopt_jax.training.history_reader import read_history

quick = settings(
    max_examples=300, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
thorough = settings(quick, max_examples=20_000)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = sorted({key for row in make_rows(1) for key in row})


@st.composite
def changed_rows(draw):
    """A good history in which some values, keys or whole rows were replaced."""
    rows = make_rows(3)
    for _ in range(draw(st.integers(1, 3))):
        line = draw(st.integers(0, len(rows) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                rows[line] = {**rows[line], draw(st.sampled_from(KEYS)): draw(json_values)}
            case 1:
                rows.insert(line, rows[draw(st.integers(0, len(rows) - 1))])
            case 2 if len(rows) > 1:
                del rows[line]
            case 3:
                rows[line] = {k: v for k, v in rows[line].items() if draw(st.booleans())}
            case _:
                key = draw(st.sampled_from(["fitness", "weights", "cases", "excluded", "es"]))
                if isinstance(rows[line].get(key), list) and rows[line][key]:
                    values = list(rows[line][key])
                    values[draw(st.integers(0, len(values) - 1))] = draw(json_values)
                    rows[line] = {**rows[line], key: values}
    return rows


def is_hex(text, digits):
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", text) is not None


def check_read(path):
    """The reader's answer, checked against the file without the reader's own code."""
    try:
        history = read_history(path)
    except EsoptError as fault:
        assert "\n" not in str(fault) and str(path) in str(fault)
        return
    lines = path.read_bytes().split(b"\n")[:-1]
    if history is None:
        assert not lines
        return
    rows = [json.loads(line) for line in lines]
    assert rows[0]["kind"] == "header" and rows[0]["schema"] == 1 and rows[0]["noise_spec"] == 1
    assert is_hex(rows[0]["base_digest"], 32)
    assert all(row["kind"] in ("generation", "applied", "resumed") for row in rows[1:])
    written = [row for row in rows if row["kind"] == "generation"]
    applied = [row for row in rows if row["kind"] == "applied"]
    assert [row["kind"] for row in rows[1:] if row["kind"] != "resumed"] == ["generation", "applied"] * len(applied) + [
        "generation"
    ] * (len(written) - len(applied))
    assert len(history.records) == len(written) and len(history.digests) == len(applied)
    assert [row["generation"] for row in written] == list(range(len(written)))
    assert [row["generation"] for row in applied] == list(range(len(applied)))
    assert all(is_hex(row["digest"], 32) for row in applied)
    for row, record in zip(written, history.records, strict=True):
        for name in ("fitness", "weights"):
            assert len(row[name]) == POPULATION == rows[0]["es"]["population_size"]
            assert getattr(record, name).astype(np.float64).tolist() == row[name]
            assert np.isfinite(getattr(record, name)).all()
        assert 0 <= row["sigma"] < np.inf and 0 <= row["alpha"] < np.inf
        assert record.cases == tuple(row["cases"]) and min(record.cases, default=0) >= 0


@quick
@given(changed_rows())
def test_changed_rows(tmp_path, rows):
    check_read(write_rows(tmp_path / "history.jsonl", rows))


def flipped_bytes(tmp_path, changes):
    text = bytearray(write_rows(tmp_path / "history.jsonl", make_rows(3)).read_bytes())
    for position, value in changes:
        text[position % len(text)] = value
    (tmp_path / "history.jsonl").write_bytes(text)
    check_read(tmp_path / "history.jsonl")


byte_changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)


@quick
@given(byte_changes)
def test_changed_bytes(tmp_path, changes):
    flipped_bytes(tmp_path, changes)


@quick
@given(st.binary(max_size=200))
def test_anything_at_all(tmp_path, text):
    (tmp_path / "history.jsonl").write_bytes(text)
    check_read(tmp_path / "history.jsonl")


@pytest.mark.slow
@thorough
@given(changed_rows(), byte_changes)
def test_very_many_changes(tmp_path, rows, changes):
    check_read(write_rows(tmp_path / "history.jsonl", rows))
    flipped_bytes(tmp_path, changes)
