"""`evaluations.jsonl`: every held-out score of a run, task by task, so that runs can be compared puzzle by puzzle.

    {"updates", "policy", "sampling", "metric", "mean", "ci95", "episodes", "mean_turns", "invalid_action_rate",
     "faults", "cases", "solved", "played", "seconds"}

`policy` is "tuned" (the weights after so many updates), or "best_random", "randopt" or "randopt_vote" (`updates` then
counts those of the whole run).
`cases[i]` was solved `solved[i]` times in `played[i]` episodes. An evaluation that is in the file is not played again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from esopt_jax.errors import EsoptError
from esopt_jax.training.jsonl import JsonlWriter
from esopt_jax.training.scoring import Evaluation

TUNED, BEST_RANDOM = "tuned", "best_random"
RANDOPT, RANDOPT_VOTE = "randopt", "randopt_vote"


class Scored(NamedTuple):
    """What was evaluated."""

    updates: int
    policy: str
    sampling: str


def read_evaluations(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[Scored, tuple[Evaluation, float]]:
    """What the rows of `path` hold: each evaluation and the seconds that it took.

    Raises:
        EsoptError: a row is no evaluation; the message names its line.
    """
    found: dict[Scored, tuple[Evaluation, float]] = {}
    for number, row in enumerate(rows, 1):
        try:
            scored = Scored(row["updates"], row["policy"], row["sampling"])
            if [type(part) for part in scored] != [int, str, str]:
                raise TypeError("it does not say what was evaluated")
            found[scored] = Evaluation.from_row(row), float(row["seconds"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise EsoptError(
                f"{path}, line {number} is no evaluation; delete the line to have it played again"
            ) from None
    return found


class EvaluationLog(JsonlWriter):
    """The evaluations of a run, those of earlier processes included."""

    def __init__(
        self,
        path: Path,
        *,
        keep: int | None = None,
        found: Mapping[Scored, tuple[Evaluation, float]] = MappingProxyType({}),
    ) -> None:
        """As `JsonlWriter`; `found` are those that the file holds already."""
        super().__init__(path, keep=keep)
        self._found = dict(found)

    def get(self, scored: Scored) -> Evaluation | None:
        """The evaluation, if it has been played."""
        return self._found[scored][0] if scored in self._found else None

    def has_base(self) -> bool:
        """Whether the base weights have been scored."""
        return any(scored.updates == 0 for scored in self._found)

    def seconds(self, scored: Scored) -> float:
        """How long it took."""
        return self._found[scored][1]

    def add(self, scored: Scored, result: Evaluation, *, cases: Sequence[int], seconds: float) -> None:
        """Put an evaluation on the disk."""
        self.write({**scored._asdict(), **result.row(), "cases": list(cases), "seconds": seconds})
        self._found[scored] = result, seconds
