"""A toy task for searches: write a function that returns a number; the nearer to 2.5, the better."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from esopt_jax.search.config import from_mapping
from esopt_jax.search.scorer import Score
from esopt_jax.search.scripted import ScriptedWriter

TARGET = 2.5


@dataclass(frozen=True)
class Guess:
    """The task, for prompts."""

    signature: str = "def guess(scale):"
    description: str = "Return a good number."


@dataclass
class HereScorer:
    """Runs programs of the tests' own in this process; remembers what it ran."""

    direction: str = "min"
    constant: bool = False
    ran: list[str] = field(default_factory=list)

    def score(self, codes: Sequence[str]) -> Iterator[Score]:
        for code in codes:
            self.ran.append(code)
            scope = {}
            try:
                exec(code, scope)
                distance = abs(float(scope["guess"](1)) - TARGET)
            except Exception as fault:
                yield Score(None, f"{type(fault).__name__}: {fault}")
                continue
            value = 0.0 if self.constant else distance
            yield Score(value if self.direction == "min" else -value)


def toy_writer(**options) -> ScriptedWriter:
    return ScriptedWriter(Guess().signature, ("x = NUMBER\nreturn x * $0",), **options)


def toy_config(**search):
    return from_mapping({"search": search, "writer": {"backend": "scripted"}, "progress": "none"})
