"""Seconds spent compiling, as JAX itself reports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax

# Lowering and backend compilation; tracing is left out, since nested traces report the same seconds twice.
_EVENTS = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")


@dataclass
class CompileClock:
    """`seconds` grows while the clock runs."""

    seconds: float = 0.0


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
            clock.seconds += seconds

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
