"""One process a run folder: a lock that the system releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esopt_jax.errors import EsoptError

log = logging.getLogger(__name__)


@contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path` within the block.

    Raises:
        EsoptError: another process holds it, or the file cannot be opened.
    """
    try:
        stream = path.open("a+", encoding="utf-8")
    except OSError as fault:
        raise EsoptError(f"run folder {str(path.parent)!r} cannot be locked: {fault.strerror}") from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(path) or "unknown"
            text = f"run folder {str(path.parent)!r} is in use by process {holder}; wait for it to end, or stop it"
            raise EsoptError(text) from None
        except OSError as fault:  # a file system without locks
            log.warning("no lock on %s: %s; see to it that no other process writes there", path.parent, fault.strerror)
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield


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


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
