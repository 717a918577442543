"""Why a run stops before its end, and what is said about it.

SIGTERM and SIGUSR1, which schedulers send before they kill, stop a run at once and resumably: a run may stop anywhere
without loss, so the handler simply raises. Whatever swallows that exception (a destructor, a callback) only delays the
stop until the run next calls `StopRequest.check`.
"""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import jax

from esopt_jax.errors import EsoptError, StoppedError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StopSignal(BaseException):
    """A signal asked the run to stop. No `Exception`, so that code which survives errors does not survive this."""


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


class StopRequest:
    """Whether a signal has come."""

    def __init__(self) -> None:
        self.name: str | None = None

    def check(self) -> None:
        """Raise `StopSignal` if one has come."""
        if self.name is not None:
            raise StopSignal(self.name)


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn the signals into `StopSignal` within the block; a second one ends the process as it always would.

    Only the main thread of a process can do that: elsewhere the signals keep their meaning.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if request.name is None:  # a second signal of another kind does not disturb the stop
            request.name = signal.Signals(number).name
            request.check()

    earlier = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            signal.signal(number, stop)
        yield request
    finally:
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _named(fault: OSError) -> str:
    return f" ({str(fault.filename)!r})" if fault.filename is not None else ""
