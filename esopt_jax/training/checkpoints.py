"""Checkpoints of the weights, trusted only after their checksums and their digest.

    checkpoints/after_00010/weights/          orbax, leaf paths as names
    checkpoints/after_00010/checkpoint.json   {"updates": 10, "digest": ...}
    checkpoints/after_00010/SHA256SUMS        of every file; `sha256sum -c` reads it

A checkpoint is written under another name and renamed when it is complete. Orbax restores files with flipped bits
without a word, hence the checksums. Nothing depends on a checkpoint but time: the history rebuilds the same weights.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from esopt_jax.core.digest import digest
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.rollouts.processes import count, index
from esopt_jax.training.jsonl import read_json, write_json
from esopt_jax.training.moments import At, Moment, pass_by
from esopt_jax.types import Master

log = logging.getLogger(__name__)

_SPARE = 1_000_000
"""Bytes that a checkpoint may need beside its weights."""
_SUMS, _RECORD, _WEIGHTS = "SHA256SUMS", "checkpoint.json", "weights"


def shapes_of(master: Master) -> Master:
    """`jax.ShapeDtypeStruct`s in the place of arrays: what `restore_checkpoint` must know of the weights."""
    shapes: Master = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), master)
    return shapes


def saved_checkpoints(root: Path) -> list[int]:
    """Numbers of updates after which complete checkpoints were written, the newest first. They are not checked."""
    names = [re.fullmatch(r"after_(\d+)", path.name) for path in root.glob("after_*")]
    return sorted((int(name[1]) for name in names if name), reverse=True)


def save_checkpoint(root: Path, master: Master, *, updates: int, keep: int, at: At = pass_by) -> None:
    """Write the weights after `updates` updates, then remove all but the newest `keep` checkpoints.

    Raises:
        StoppedError: it cannot be written; what is there already stays.
    """
    folder, partial = _folder(root, updates), _partial(root, updates)
    try:
        tidy(root, updates=updates, keep=keep)
        _check_space(root.parent, master)
        root.mkdir(exist_ok=True)  # but not the run folder, should that have vanished
        partial.mkdir()
        _write_weights(partial / _WEIGHTS, master, at)
        write_json(partial / _RECORD, {"updates": updates, "digest": digest(master)})
        at(Moment.BEFORE_SUMS)
        sums = "".join(f"{_sha256(path)}  {path.relative_to(partial)}\n" for path in _files(partial))
        with (partial / _SUMS).open("w", encoding="utf-8") as stream:
            stream.write(sums)
            stream.flush()
            os.fsync(stream.fileno())
        partial.rename(folder)
        tidy(root, updates=updates, keep=keep)
    except Exception as fault:  # orbax passes on what its storage raises, in many types
        raise StoppedError(f"checkpoint {str(folder)!r} cannot be written: {_reason(fault)}") from fault


def restore_checkpoint(root: Path, updates: int, expected: str, *, like: Master) -> Master:
    """The weights of a checkpoint.

    Args:
        root: the folder of checkpoints.
        updates: which one.
        expected: digest that the weights must have, as the history knows it.
        like: `jax.ShapeDtypeStruct`s of the weights, with the placement to restore to.

    Raises:
        EsoptError: the checkpoint is damaged or is one of other weights; the message says how.
    """
    folder = _folder(root, updates)
    try:
        _check_sums(folder)
        record = read_json(folder / _RECORD)
        if (record.get("updates"), record.get("digest")) != (updates, expected):
            raise EsoptError(f"it belongs to another history: it holds {record}, not the digest {expected}")
        master = _read_weights(folder / _WEIGHTS, like)
        if (found := digest(master)) != expected:
            raise EsoptError(f"the digest of its weights is {found}, not {expected}")
    except Exception as fault:  # as above
        raise EsoptError(f"checkpoint {str(folder)!r} cannot be used: {_reason(fault)}") from fault
    return master


def tidy(root: Path, *, updates: int, keep: int) -> None:
    """Remove what was left half written, and all but the newest `keep` checkpoints of at most `updates` updates."""
    for old in [found for found in saved_checkpoints(root) if found <= updates][keep:]:
        _folder(root, old).rename(_partial(root, old))  # from here on it does not count, however far this gets
    for leftover in root.glob("*.partial"):
        shutil.rmtree(leftover)


def set_aside(root: Path, updates: int) -> None:
    """Rename a checkpoint that cannot be used, so that it does not count any more; an earlier such one makes room."""
    folder = _folder(root, updates)
    aside = folder.with_name(folder.name + ".damaged")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)


def _folder(root: Path, updates: int) -> Path:
    return root / f"after_{updates:05d}"


def _partial(root: Path, updates: int) -> Path:
    return root / f"after_{updates:05d}.partial"


def _reason(fault: Exception) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0]


def _check_space(where: Path, master: Master) -> None:
    """Refuse early what would fill the disk: orbax, caught in the middle, prints the tracebacks of all its threads."""
    needed = sum(leaf.nbytes for leaf in jax.tree.leaves(master)) * 11 // 10 + _SPARE
    free = shutil.disk_usage(where).free
    if free < needed:
        raise OSError(f"the disk is full: it needs {needed / 1e9:.3g} GB, {free / 1e9:.3g} GB are free")


def _write_weights(folder: Path, master: Master, at: At) -> None:
    with _checkpointer() as checkpointer:
        if count() > 1:  # orbax takes an array that only this process holds for a part of one
            master = jax.tree.map(np.asarray, master)
        checkpointer.save(folder.absolute(), master)
        at(Moment.CHECKPOINT)  # it writes in the background
        checkpointer.wait_until_finished()


def _read_weights(folder: Path, like: Master) -> Master:
    with _checkpointer() as checkpointer:
        master: Master = checkpointer.restore(folder.absolute(), like)
    return master


def _checkpointer() -> Any:
    """Orbax's, which waits for no other process: each has all the weights."""
    import orbax.checkpoint as ocp

    if count() == 1:
        return ocp.StandardCheckpointer()
    me = index()
    alone = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me}, barrier_sync_key_prefix=str(me))
    return ocp.StandardCheckpointer(multiprocessing_options=alone)


def _check_sums(folder: Path) -> None:
    """Refuse a checkpoint of which a file was changed, removed or added."""
    listed: dict[str, str] = {}
    for line in (folder / _SUMS).read_text(encoding="ascii").splitlines():
        if not (match := re.fullmatch(r"([0-9a-f]{64})  (.+)", line)):
            raise EsoptError(f"{_SUMS} has a damaged line")
        listed[match[2]] = match[1]
    present = {str(path.relative_to(folder)): path for path in _files(folder) if path.name != _SUMS}
    if differing := sorted(listed.keys() ^ present.keys()):
        raise EsoptError(f"{differing[0]} is {'missing' if differing[0] in listed else 'not in ' + _SUMS}")
    for name, path in present.items():
        if _sha256(path) != listed[name]:
            raise EsoptError(f"{name} was changed: its checksum differs")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
