"""Reads the files of a run folder for all reports, also while the run is still writing them.

The last line of `metrics.jsonl` may be half written, by a run that goes on or was killed: it is left out in silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from esopt_jax.config import Config
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.training.jsonl import expendable, read
from esopt_jax.training.metrics import check_rows
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
    if not folder.config.is_file():
        hint = _runs_below(path)
        raise EsoptError(f"{str(path)!r} is no run folder: it has no {folder.config.name}{hint}")
    return folder


def with_seeds(path: Path) -> list[Path]:
    """The run folder itself; of a folder that `--seeds` filled, those of its seeds, in order."""
    seeds = sorted(path.glob("seed-*/config.yaml"), key=lambda file: (len(file.parent.name), file.parent.name))
    return [file.parent for file in seeds] if seeds and not (path / "config.yaml").exists() else [path]


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
    check_rows(folder.metrics, rows)
    return rows


def read_summary(folder: RunFolder) -> dict[str, Any] | None:
    """`summary.json`, or None if there is none yet, or a damaged one, which is logged."""
    return expendable(folder.summary) or None


def population_rows(rows: list[Row]) -> list[Row]:
    """Rows of generations."""
    return [row for row in rows if "fitness/mean" in row]


def evaluation_rows(rows: list[Row]) -> list[Row]:
    """Rows of held-out evaluations."""
    return [row for row in rows if "eval/solve_rate" in row]


def with_numbers(rows: list[Row], *names: str) -> list[Row]:
    """The rows that have a number under each of these names."""
    return [row for row in rows if all(isinstance(row.get(name), int | float) for name in names)]


def _runs_below(path: Path) -> str:
    """A hint for `esopt plot runs`."""
    below = sorted(file.parent.name for file in path.glob("*/config.yaml"))
    return f"; did you mean {str(path / below[0])!r}?" if below else ""
