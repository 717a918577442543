"""Why a run stops before its end, and what is said about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.training.signals import StopSignal

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class InterruptedRunError(StoppedError):
    """A person stopped the run. Exit code 130."""

    exit_code = 130


STOPS = (EsoptError, StopSignal, KeyboardInterrupt, OSError, jax.errors.JaxRuntimeError)
"""What ends a run without being a fault of this package."""


def as_stop(fault: BaseException) -> EsoptError | None:
    """One of `STOPS` as the error that a user reads; None when it is a fault of this package after all.

    Example:
        >>> str(as_stop(OSError(errno.ENOSPC, "No space left on device", "history.jsonl")))
        "the disk is full ('history.jsonl'): free some space"
    """
    match fault:
        case EsoptError():
            return fault
        case KeyboardInterrupt():
            return InterruptedRunError("interrupted")
        case StopSignal():
            return StoppedError(f"stopped by {fault}")
        case OSError() if fault.errno in FULL:
            return StoppedError(f"the disk is full{_named(fault)}: free some space")
        case OSError() if fault.errno == errno.ENOENT:
            return StoppedError(f"a file or folder vanished{_named(fault)}")
        case OSError():
            return StoppedError(f"{fault.strerror or fault}{_named(fault)}")
        case jax.errors.JaxRuntimeError() if "RESOURCE_EXHAUSTED" in str(fault) or "Out of memory" in str(fault):
            what = str(fault).splitlines()[0]
            return StoppedError(f"out of memory ({what}): lower es.members_per_pass, rollout.cases or eval.rows")
    return None


@contextmanager
def stops() -> Iterator[None]:
    """Turn whatever of `STOPS` ends the block into the error that a user reads.

    Raises:
        EsoptError: that error.
    """
    try:
        yield
    except STOPS as fault:
        stop = as_stop(fault)
        if stop is None or stop is fault:
            raise
        raise stop from fault


def _named(fault: OSError) -> str:
    return f" ({str(fault.filename)!r})" if fault.filename is not None else ""
