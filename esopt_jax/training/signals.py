"""SIGTERM and SIGUSR1, which schedulers send before they kill, stop a run at once and resumably.

A run may stop anywhere without loss, so the handler simply raises. Whatever swallows that exception (a destructor, a
callback) only delays the stop until the run next calls `StopRequest.check`. Loads nothing heavy: a command listens from
its first moment on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopSignal(BaseException):
    """A signal asked the run to stop. No `Exception`, so that code which survives errors does not survive this."""


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
