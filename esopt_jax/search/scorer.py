"""What a program is worth: the interface between a search and a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from esopt_jax.search.program import Direction


@dataclass(frozen=True)
class Score:
    """What scoring a program gave.

    Attributes:
        objective: in the task's own units; None where the program is invalid.
        reason: why it is invalid.
        seconds: that it took.
    """

    objective: float | None
    reason: str = ""
    seconds: float = 0.0


class Scorer(Protocol):
    """Scores programs for one task: the same code always gets the same objective."""

    @property
    def direction(self) -> Direction:
        """Whether a smaller or a larger objective is better."""
        ...

    def score(self, codes: Sequence[str]) -> Iterator[Score]:
        """One score each, in their order, each as soon as it is known."""
        ...
