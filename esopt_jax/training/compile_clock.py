"""Seconds spent compiling, as JAX itself reports them: tracing, lowering, and XLA's part."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import jax

_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class CompileClock:
    """`seconds` grows while the clock runs.

    An event comes at its end, with its duration; those inside it, traces within a trace, have come before. Each second
    counts once: of a thread's intervals, one that holds others takes their place.
    """

    def __init__(self) -> None:
        self._intervals: dict[int, list[tuple[float, float]]] = {}

    @property
    def seconds(self) -> float:
        """So far, over all threads."""
        return sum(duration for intervals in list(self._intervals.values()) for _, duration in list(intervals))

    def add(self, duration: float, *, now: float) -> None:
        """An event of this thread has ended `now`.

        Example:
            >>> clock = CompileClock()
            >>> clock.add(1.0, now=2.0)
            >>> clock.add(1.0, now=3.5)
            >>> clock.add(3.0, now=4.0)
            >>> clock.seconds
            3.0
        """
        intervals = self._intervals.setdefault(threading.get_ident(), [])
        inside = next((place for place, (began, _) in enumerate(intervals) if began >= now - duration), len(intervals))
        intervals[inside:] = [(now - duration, duration)]


@contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """Count the seconds of every compilation in the block, by any thread.

    Example:
        >>> import jax.numpy as jnp
        >>> with compile_clock() as clock:
        ...     _ = jax.jit(lambda x: x * 3 + 1)(jnp.ones(7))
        >>> clock.seconds > 0
        True
    """
    clock = CompileClock()

    def listen(event: str, seconds: float, **_: object) -> None:
        if event in _EVENTS:
            clock.add(seconds, now=time.perf_counter())

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
