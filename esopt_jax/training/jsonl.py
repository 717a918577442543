"""Strict JSON lines: one object a line, floats that round-trip, nothing that another parser would refuse."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO


def encode(row: Mapping[str, Any]) -> str:
    """One line without its newline.

    Python writes the shortest decimal that reads back as the same float64, so a float32 survives exactly.

    Raises:
        ValueError: a value is NaN or infinite, which JSON cannot say.

    Example:
        >>> encode({"generation": 3, "fitness": [0.5, 1.0]})
        '{"generation": 3, "fitness": [0.5, 1.0]}'
    """
    return json.dumps(row, allow_nan=False)


def append(stream: TextIO, row: Mapping[str, Any], *, sync: bool = False) -> None:
    """Write one line and hand it to the operating system; with `sync`, wait until it is on the disk.

    The line is encoded first and written in one call, so that a refused value leaves nothing behind.
    """
    line = encode(row) + "\n"
    stream.write(line)
    stream.flush()
    if sync:
        os.fsync(stream.fileno())


def read(path: Path) -> list[dict[str, Any]]:
    """All rows of a complete file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """Replace `path` by `tree` as indented JSON; a reader sees the old file or the new one, never half of it."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(tree, indent=2, allow_nan=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
