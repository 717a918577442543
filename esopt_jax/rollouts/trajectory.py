"""Episodes on disk: one JSON object a line, gzipped. A fault's rewards, which are NaN, are null there."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.types import Trajectory, Turn

REWARDS = ("reward", "terminal_reward")


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory as what `json.dumps` can write.

    Example:
        >>> episode = Trajectory(0, -1, 3, "toy-3", 0, (), "error", math.nan, math.nan, error="timed out")
        >>> to_record(episode)["reward"] is None
        True
        >>> from_record(to_record(episode)).error
        'timed out'
    """
    record = _fields(trajectory)
    record["turns"] = [_without_nan({**_fields(turn), "info": _sayable(turn.info)}) for turn in trajectory.turns]
    return _without_nan(record)


def from_record(record: dict[str, Any]) -> Trajectory:
    """The inverse of `to_record`, up to what JSON keeps of `Turn.info`."""
    turns = tuple(
        Turn(**{**_with_nan(turn), **{name: tuple(turn[name]) for name in ("prompt_ids", "completion_ids")}})
        for turn in record["turns"]
    )
    return Trajectory(**{**_with_nan(record), "turns": turns})


def to_line(trajectory: Trajectory) -> bytes:
    """The record as a line of JSON."""
    line = json.dumps(to_record(trajectory), default=_plain, allow_nan=False, ensure_ascii=False)
    return line.encode(errors="backslashreplace") + b"\n"  # a lone surrogate becomes its JSON escape


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """Write a `.jsonl.gz` file; a reader sees all of it or none. Equal episodes give equal bytes."""
    path.parent.mkdir(exist_ok=True)  # but not the run folder, should that have vanished
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        for trajectory in trajectories:
            file.write(to_line(trajectory))
    os.replace(partial, path)


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """The episodes of a file, one at a time.

    Raises:
        EsoptError: the file is absent, cut short, or holds a line that is not an episode.
    """
    whole = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield from_record(json.loads(line))
                whole += 1
    except FileNotFoundError:
        raise EsoptError(f"trajectory file {str(path)!r} does not exist") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError) as fault:
        raise EsoptError(f"{path}: no episode can be read at or after line {whole + 1}: {fault}") from None


def _fields(record: Trajectory | Turn) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _without_nan(record: dict[str, Any]) -> dict[str, Any]:
    return {name: None if name in REWARDS and math.isnan(value) else value for name, value in record.items()}


def _with_nan(record: dict[str, Any]) -> dict[str, Any]:
    return {name: math.nan if name in REWARDS and value is None else value for name, value in record.items()}


def _sayable(value: Any) -> Any:
    """What an environment put into `info`, with the numbers that JSON cannot say as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _sayable(part) for name, part in value.items()}
    return [_sayable(part) for part in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """Numbers of NumPy as Python's, other objects of an environment as text."""
    return _sayable(value.item()) if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else str(value)
