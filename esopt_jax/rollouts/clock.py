"""Where the time of rollouts goes, as the thread that drives them sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Phase = Literal["perturb", "prefill", "decode", "environment"]
"""Making members; reading prompts; writing replies; waiting for the environment with nothing to write."""


@dataclass
class Clock:
    """Seconds of each phase, and what the rows of the device did in them.

    Attributes:
        compiled: seconds that this process has compiled so far; they are left out of the phases in which they fall.
        product_s: seconds that the matrix products of one token of every row take alone (`bound`); None if unknown.
        seconds: by phase, since `restart`.
        steps: of the decode loop: tokens for every row at once.
        row_steps: steps times rows: what could have been written.
        written: tokens that were, without the first of each reply, which comes with its prompt.
        read: tokens of prompts.
    """

    compiled: Callable[[], float] = float
    product_s: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    row_steps: int = 0
    written: int = 0
    read: int = 0

    def restart(self) -> None:
        """Count from here on."""
        self.seconds = {}
        self.steps = self.row_steps = self.written = self.read = 0

    @contextmanager
    def __call__(self, phase: Phase) -> Iterator[None]:
        """Count the block as `phase`; its results must be there at its end."""
        began, compiled = time.perf_counter(), self.compiled()
        try:
            yield
        finally:
            spent = time.perf_counter() - began - (self.compiled() - compiled)
            self.seconds[phase] = self.seconds.get(phase, 0.0) + max(
                0.0, spent
            )  # several threads may have compiled at once

    def wrote(self, tokens: np.ndarray) -> None:
        """One call of the decode loop wrote so many `tokens: [rows]`; it took as many steps as the longest."""
        steps = int(tokens.max(initial=0))
        self.steps += steps
        self.row_steps += steps * tokens.size
        self.written += int(tokens.sum())

    @property
    def idle_share(self) -> float:
        """Share of what the rows could have written that they did not: they had ended, or had no episode."""
        return 1 - self.written / self.row_steps if self.row_steps else 0.0

    @property
    def product_share(self) -> float | None:
        """Share of the time of decoding that its matrix products would take alone; None if that is unknown."""
        decode_s = self.seconds.get("decode", 0.0)
        return self.steps * self.product_s / decode_s if self.product_s is not None and decode_s else None
