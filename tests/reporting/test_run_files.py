"""Run folders are read while they are written; what is damaged is named."""

import json

import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.reporting.run_files import open_run, read_config, read_metrics, read_summary
from esopt_jax.training.run_folder import RunFolder

_ROWS = [{"generation": 0, "eval/solve_rate": 0.5}, {"generation": 0, "fitness/mean": None}]
_TEXT = "".join(json.dumps(row) + "\n" for row in _ROWS)


def _metrics(tmp_path, data):
    folder = RunFolder(tmp_path)
    folder.metrics.write_bytes(data)
    return read_metrics(folder)


@pytest.mark.parametrize(
    "tail", [b"", b'{"generation": 1}', b'{"generation": 1, "fit', b'{"generation": 1, "preset": "\xc3', b"{", b"\0\0"]
)
def test_half_written_last_line_is_left_out(tmp_path, tail):
    assert _metrics(tmp_path, _TEXT.encode() + tail) == _ROWS


@pytest.mark.parametrize("line", ["{", "[]", '{"fitness/mean": 1}', ""])
def test_a_bad_line_elsewhere_is_named(tmp_path, line):
    with pytest.raises(EsoptError, match=r"metrics\.jsonl, line 2 "):
        _metrics(tmp_path, f"{_TEXT.splitlines()[0]}\n{line}\n{_TEXT}".encode())


def test_files_that_are_not_there_yet(tmp_path):
    folder = RunFolder(tmp_path)
    assert read_metrics(folder) == [] and read_summary(folder) is None
    with pytest.raises(EsoptError, match="does not exist"):
        read_config(folder)


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read: Expecting"), ("[]", "holds list")])
def test_a_damaged_summary_is_said_and_passed_over(tmp_path, caplog, text, message):
    (tmp_path / "summary.json").write_text(text)
    assert read_summary(RunFolder(tmp_path)) is None
    assert message in caplog.text and "going on without it" in caplog.text


def test_what_is_no_run(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.yaml").touch()
    for name, message in (("file", "is not a folder"), ("none", "does not exist"), ("runs", "did you mean '.*mine'?")):
        with pytest.raises(EsoptError, match=message):
            open_run(tmp_path / name)
    assert open_run(tmp_path / "runs" / "mine").config.name == "config.yaml"
