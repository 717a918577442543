"""One process a run folder: a lock that the system releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from esopt_jax.errors import EsoptError, StoppedError

log = logging.getLogger(__name__)

ATTEMPTS, PAUSE_S = 5, 0.05
"""Another process that only looks whether the lock is held holds it for a moment itself."""


@contextmanager
def run_lock(path: Path) -> Iterator[Callable[[], None]]:
    """Hold the lock file `path` within the block; the function that it yields checks that it is still the one there.

    Raises:
        EsoptError: another process holds it, or the file cannot be opened.
    """
    try:
        stream = path.open("a+", encoding="utf-8")
    except OSError as fault:
        raise EsoptError(f"run folder {str(path.parent)!r} cannot be locked: {fault.strerror}") from None
    with stream:
        try:
            if not _taken(stream):
                holder = path.read_text(encoding="utf-8").strip() or "unknown"
                text = f"run folder {str(path.parent)!r} is in use by process {holder}; wait for it to end, or stop it"
                raise EsoptError(text)
        except OSError as fault:  # a file system without locks
            log.warning("no lock on %s: %s; see to it that no other process writes there", path.parent, fault.strerror)
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield partial(_check_held, stream, path)


def _check_held(stream: TextIO, path: Path) -> None:
    """Stop if the file that is held is no longer the one that another process would lock.

    Raises:
        StoppedError: it was removed or replaced.
    """
    try:
        held = os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        held = False
    if not held:
        raise StoppedError(f"{path} was removed or replaced: another process may write to this run folder")


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file `path` now."""
    try:
        with path.open("r", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _taken(stream: TextIO) -> bool:
    """Whether the lock could be taken."""
    for attempt in range(ATTEMPTS):
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(PAUSE_S if attempt < ATTEMPTS - 1 else 0)
    return False
