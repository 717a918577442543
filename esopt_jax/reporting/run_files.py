"""Reads the files of a run folder for all reports, also while the run is still writing them.

The last line of `metrics.jsonl` may be half written, by a run that goes on or was killed: it is left out in silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from esopt_jax.config import Config
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.training.jsonl import read, read_json
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
    rows = read(folder.metrics) if folder.metrics.exists() else []
    for number, row in enumerate(rows, 1):
        if type(row.get("generation")) is not int:
            raise EsoptError(f"{folder.metrics}, line {number} is no row of metrics; the file is damaged there")
    return rows


def read_summary(folder: RunFolder) -> dict[str, Any] | None:
    """`summary.json`, or None if there is none yet.

    Raises:
        EsoptError: it holds something else.
    """
    return read_json(folder.summary) if folder.summary.exists() else None


def population_rows(rows: list[Row]) -> list[Row]:
    """Rows of generations."""
    return [row for row in rows if "fitness/mean" in row]


def evaluation_rows(rows: list[Row]) -> list[Row]:
    """Rows of held-out evaluations."""
    return [row for row in rows if "eval/solve_rate" in row]


def _runs_below(path: Path) -> str:
    """A hint for `esopt plot runs`."""
    below = sorted(file.parent.name for file in path.glob("*/config.yaml"))
    return f"; did you mean {str(path / below[0])!r}?" if below else ""
