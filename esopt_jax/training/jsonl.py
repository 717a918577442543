"""Strict JSON lines: one object a line, floats that round-trip, nothing that another parser would refuse.

A line counts once its newline is there. What follows the last newline was being written when the process ended: readers
leave it out and `JsonlWriter` cuts it off.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from esopt_jax.errors import EsoptError

log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Lines:
    """What a file holds.

    Attributes:
        rows: one object a complete line.
        size: bytes of the complete lines.
        partial: whether something follows them.
    """

    rows: list[dict[str, Any]]
    size: int
    partial: bool


def read_lines(path: Path) -> Lines:
    """All complete lines of a file.

    Raises:
        EsoptError: the file cannot be read, or a line of it is no JSON object; the message names the line.
    """
    try:
        text = path.read_bytes()
    except OSError as fault:
        raise EsoptError(f"{path} cannot be read: {fault.strerror}") from None
    whole, newline, rest = text.rpartition(b"\n")
    rows = [_parse(path, number, line) for number, line in enumerate(whole.split(b"\n"), 1)] if newline else []
    return Lines(rows, len(whole) + len(newline), bool(rest))


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of all complete lines of a file; raises as `read_lines`."""
    return read_lines(path).rows


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as fault:
        raise EsoptError(f"{path}, line {number} is no valid row: {' '.join(str(fault).split())}") from None
    if not isinstance(row, dict):
        raise EsoptError(f"{path}, line {number} holds {type(row).__name__}; it must hold an object")
    return row


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key appears twice")
    return row


class JsonlWriter:
    """Appends rows, each on the disk when `write` returns. A context manager."""

    def __init__(self, path: Path, *, keep: int | None = None) -> None:
        """Open a file.

        Args:
            path: the file; must not exist yet unless `keep` is given.
            keep: go on with an existing file after so many bytes, and cut off the rest.
        """
        self._stream = path.open("xb" if keep is None else "r+b", buffering=0)
        if keep is not None:
            self._stream.truncate(keep)
            self._stream.seek(keep)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row. It is encoded first: a refused value leaves nothing behind."""
        self.append(encode(row) + "\n")

    def append(self, text: str, *, sync: bool = True) -> None:
        """Append text; with `sync`, wait until it is on the disk."""
        rest = memoryview(text.encode())
        while rest:
            rest = rest[self._stream.write(rest) :]
        if sync:
            os.fsync(self._stream.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """Replace `path` by `tree` as indented JSON; a reader sees the old file or the new one, never half of it."""
    write_text(path, json.dumps(tree, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in the same way, and wait until it is on the disk."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(partial, path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        EsoptError: it cannot be read or holds no object.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as fault:
        raise EsoptError(f"{path} cannot be read: {' '.join(str(fault).split())}") from None
    if not isinstance(tree, dict):
        raise EsoptError(f"{path} holds {type(tree).__name__}; it must hold an object")
    return tree


def expendable(path: Path) -> dict[str, Any]:
    """What a file says that a run can do without; nothing where it is missing, or damaged, which is logged."""
    try:
        return read_json(path) if path.exists() else {}
    except EsoptError as fault:
        log.warning("%s; going on without it", fault)
        return {}
