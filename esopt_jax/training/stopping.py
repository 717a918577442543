"""Why a run stops before its end, and what is said about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from esopt_jax.errors import EsoptError, InterruptedRunError, StoppedError
from esopt_jax.training.signals import StopRequest, StopSignal, stop_signals

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


STOPS = (EsoptError, StopSignal, KeyboardInterrupt, OSError, jax.errors.JaxRuntimeError)
"""What ends a run without being a fault of this package."""


def as_stop(fault: BaseException, request: StopRequest | None = None) -> EsoptError | None:
    """What ended the work as the error that a user reads; None when it is a fault of this package after all.

    Once a signal has come, that is the reason, whatever its exception has become on its way.

    Example:
        >>> str(as_stop(OSError(errno.ENOSPC, "No space left on device", "history.jsonl")))
        "the disk is full ('history.jsonl'): free some space"
    """
    if request is not None and (signalled := request.error()) is not None:
        return signalled
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
def stops() -> Iterator[StopRequest]:
    """Let signals end the block, and turn whatever ends it into the error that a user reads.

    Raises:
        EsoptError: that error; one of an inner block, which has said more, is passed on.
    """
    with stop_signals() as request:
        try:
            yield request
        except StoppedError:
            raise
        except BaseException as fault:
            stop = as_stop(fault, request)
            if stop is None or stop is fault:
                raise
            raise stop from fault


def _named(fault: OSError) -> str:
    return f" ({str(fault.filename)!r})" if fault.filename is not None else ""
