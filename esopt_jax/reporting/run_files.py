"""Reads the files of a run folder for all reports, also while the run is still writing them.

The last line of `metrics.jsonl` may be half written, by a run that goes on or was killed: it is left out in silence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from esopt_jax.config import Config
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.training.run_folder import RunFolder

Row = dict[str, Any]


def open_run(path: Path) -> RunFolder:
    """The files of the run in `path`, which need not all be there yet.

    Raises:
        EsoptError: `path` is no run folder.
    """
    if not path.is_dir():
        state = "is not a folder" if path.exists() else "does not exist"
        raise EsoptError(f"run folder {str(path)!r} {state}; give a folder that `esopt train` has made")
    folder = RunFolder(path)
    if not any(file.is_file() for file in (folder.config, folder.metrics, folder.summary)):
        hint = _runs_below(path)
        raise EsoptError(f"{str(path)!r} is no run folder: it has no {folder.config.name}{hint}")
    return folder


def read_config(folder: RunFolder) -> Config:
    """The resolved config.

    Raises:
        EsoptError: it is absent or cannot be read.
    """
    return load_config(folder.config.absolute())


def read_metrics(folder: RunFolder) -> list[Row]:
    """All complete rows of `metrics.jsonl`; none if it does not exist yet.

    Raises:
        EsoptError: a line other than a half-written last one is no row.
    """
    path = folder.metrics
    data = _bytes(path)
    if data is None:
        return []
    lines = data.split(b"\n")
    rows = []
    for number, line in enumerate(lines, 1):
        if not line and number == len(lines):
            break
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif number < len(lines):
            raise EsoptError(f"{path}: line {number} is no metrics row; the file is damaged there")
    return rows


def read_summary(folder: RunFolder) -> dict[str, Any] | None:
    """`summary.json`, or None if there is none yet.

    Raises:
        EsoptError: it holds something else.
    """
    data = _bytes(folder.summary)
    if data is None:
        return None
    try:
        tree = json.loads(data)
    except ValueError as fault:
        raise EsoptError(f"{folder.summary} is no JSON: {fault}") from None
    if not isinstance(tree, dict):
        raise EsoptError(f"{folder.summary} holds {type(tree).__name__}; it must hold the summary of a run")
    return tree


def population_rows(rows: list[Row]) -> list[Row]:
    """Rows of generations."""
    return [row for row in rows if "fitness/mean" in row]


def evaluation_rows(rows: list[Row]) -> list[Row]:
    """Rows of held-out evaluations."""
    return [row for row in rows if "eval/solve_rate" in row]


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise EsoptError(f"cannot read {path}: {fault.strerror}") from None


def _row(line: bytes) -> Row | None:
    """The row, or None when the line is not one."""
    try:
        row = json.loads(line)
    except ValueError:  # also bytes that are no UTF-8
        return None
    return row if isinstance(row, dict) and isinstance(row.get("generation"), int) else None


def _runs_below(path: Path) -> str:
    """A hint for `esopt plot runs`."""
    below = sorted(file.parent.name for file in path.glob("*/config.yaml"))
    return f"; did you mean {str(path / below[0])!r}?" if below else ""
