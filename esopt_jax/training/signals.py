"""Ctrl-C and the signals that schedulers send before they kill stop a run at once and resumably.

A run may stop anywhere without loss, so the handler simply raises. That exception may be swallowed on its way (by a
destructor, a callback of the garbage collector: nothing is printed about that here) or come out as another (a module
that was being imported "cannot be initialised"), so the request is also kept: the run asks for it at each of its
moments, and whoever reports a failure asks for it first. Loads nothing heavy: a command listens from its first moment.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from esopt_jax.errors import InterruptedRunError, StoppedError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignal(BaseException):
    """A signal asked the run to stop. No `Exception`, so that code which survives errors does not survive this."""


class StopRequest:
    """Whether a signal has come."""

    def __init__(self) -> None:
        self.name: str | None = None

    def check(self) -> None:
        """Raise `StopSignal`, or `KeyboardInterrupt` for Ctrl-C, if one has come."""
        if self.name == "SIGINT":
            raise KeyboardInterrupt
        if self.name is not None:
            raise StopSignal(self.name)

    def error(self) -> StoppedError | None:
        """What a user reads about the signal that has come; None when none has."""
        if self.name is None:
            return None
        return InterruptedRunError("interrupted") if self.name == "SIGINT" else StoppedError(f"stopped by {self.name}")


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Let the signals raise within the block; a second one acts as it always would.

    Only the main thread of a process can do that: elsewhere the signals keep their meaning. So does one that the
    process was started to ignore, as Ctrl-C is by a job in the background.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if request.name is None:  # a second signal of another kind does not disturb the stop
            request.name = signal.Signals(number).name
            request.check()

    def report(swallowed: sys.UnraisableHookArgs) -> None:
        if request.name is None or not issubclass(swallowed.exc_type, (StopSignal, KeyboardInterrupt)):
            reported(swallowed)

    reported = sys.unraisablehook
    earlier = {number: signal.getsignal(number) for number in SIGNALS}
    earlier = {number: handler for number, handler in earlier.items() if handler != signal.SIG_IGN}
    try:
        for number in earlier:
            signal.signal(number, stop)
        sys.unraisablehook = report
        yield request
    finally:
        sys.unraisablehook = reported
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def signals_stop() -> Iterator[None]:
    """Let a signal end a command from its first moment to its last; what runs within has more to say about a stop.

    Raises:
        StoppedError: a signal came, whatever its exception has become on its way.
    """
    with stop_signals() as stop:
        try:
            yield
        except StoppedError:
            raise
        except BaseException as fault:
            if (signalled := stop.error()) is None:
                raise
            raise signalled from fault
