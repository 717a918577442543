"""Who writes programs: one interface for every call of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from esopt_jax.types import Message


@dataclass(frozen=True)
class Request:
    """One call.

    Attributes:
        messages: the conversation so far.
        seed: of the sampling, 0 .. 2^31-1; equal requests with equal seeds ask for equal answers.
        temperature: 0 for the likeliest token.
        top_p: share of the probability that is sampled from.
        max_tokens: length of the answer.
        member: which perturbation of the model is asked; None for the model itself.
    """

    messages: tuple[Message, ...]
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 768
    member: int | None = None


@dataclass(frozen=True)
class Reply:
    """What came of a call.

    Attributes:
        text: what was written.
        ended: `stop`, or `length` where it was cut off.
        error: why there is no answer, where the service failed; that says nothing about the model.
    """

    text: str
    ended: Literal["stop", "length"] = "stop"
    error: str | None = None


class Writer(Protocol):
    """A language model."""

    def write(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply a request, in their order; a service that fails says so in the reply."""
        ...
