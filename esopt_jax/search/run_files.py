"""The folder of a search: what it holds, and how it is read back.

What it holds:

config.yaml      resolved config
programs.jsonl   one row a call of the language model, in the order of the calls: the whole search
answers.jsonl    what the model wrote, saved before anything is made of it
curve.csv        objective against calls
best.py          the best program so far
summary.json     results
lock             held while a process writes here
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.search.program import Direction, Program, from_row
from esopt_jax.search.state import SearchState
from esopt_jax.search.writer import Reply
from esopt_jax.training.jsonl import read_lines, write_text
from esopt_jax.training.run_folder import Folder


class SearchFolder(Folder):
    """The folder of a search."""

    @property
    def programs(self) -> Path:
        """Every program, in the order of the calls."""
        return self.path / "programs.jsonl"

    @property
    def answers(self) -> Path:
        """Every answer of the language model."""
        return self.path / "answers.jsonl"

    @property
    def updates(self) -> Path:
        """What moved the weights."""
        return self.path / "updates.jsonl"

    @property
    def curve(self) -> Path:
        """Objective against calls."""
        return self.path / "curve.csv"

    @property
    def populations(self) -> Path:
        """Who was in the population after each batch."""
        return self.path / "populations.jsonl"

    @property
    def best(self) -> Path:
        """The best program so far."""
        return self.path / "best.py"


@dataclass(frozen=True)
class Recorded:
    """What a folder holds of a search, and the bytes up to which its files are whole."""

    programs: tuple[Program, ...] = ()
    replies: Mapping[int, Reply] = field(default_factory=dict)
    programs_size: int = 0
    answers_size: int = 0


def read_recorded(folder: SearchFolder) -> Recorded:
    """The programs and answers so far; a last line that was being written does not count.

    Raises:
        EsoptError: a row is damaged; the message names its line.
    """
    programs: list[Program] = []
    size = 0
    if folder.programs.exists():
        lines = read_lines(folder.programs)
        size = lines.size
        for number, row in enumerate(lines.rows, 1):
            try:
                programs.append(from_row(row))
            except EsoptError as fault:
                raise EsoptError(f"{folder.programs}, line {number}: {fault}") from None
    replies: dict[int, Reply] = {}
    answers = 0
    if folder.answers.exists():
        lines = read_lines(folder.answers)
        answers = lines.size
        for number, row in enumerate(lines.rows, 1):
            call, reply = _reply(row, f"{folder.answers}, line {number}")
            replies.setdefault(call, reply)
    return Recorded(tuple(programs), replies, size, answers)


def answer_row(call: int, reply: Reply) -> dict[str, Any]:
    """An answer as a row of `answers.jsonl`."""
    return {"call": call, "text": reply.text, "ended": reply.ended}


def _reply(row: Mapping[str, Any], where: str) -> tuple[int, Reply]:
    call, text, ended = row.get("call"), row.get("text"), row.get("ended")
    if type(call) is not int or not isinstance(text, str) or ended not in ("stop", "length"):
        raise EsoptError(f"{where} is no answer: it needs call, text and ended")
    return call, Reply(text, "stop" if ended == "stop" else "length")


def curve_rows(programs: Sequence[Program], direction: Direction) -> list[tuple[int, float | None, float | None]]:
    """(calls, objective of the last one, best objective so far), one a call.

    Example:
        >>> def program(call, objective):
        ...     return Program(call, 0, call, 0, "i1", (), 0, "", "", objective, "" if objective else "bad", "")
        >>> curve_rows([program(0, None), program(1, 2.0), program(2, 3.0)], "max")
        [(1, None, None), (2, 2.0, 2.0), (3, 3.0, 3.0)]
    """
    best: float | None = None
    rows = []
    for program in programs:
        if program.objective is not None:
            better = max if direction == "max" else min
            best = program.objective if best is None else better(best, program.objective)
        rows.append((program.call + 1, program.objective, best))
    return rows


def curve_csv(programs: Sequence[Program], direction: Direction) -> str:
    """The same as CSV text; invalid programs have an empty objective."""
    rows = (",".join("" if value is None else repr(value) for value in row) for row in curve_rows(programs, direction))
    return "\n".join(["calls,objective,best", *rows]) + "\n"


def population_rows(states: Iterable[SearchState]) -> list[dict[str, Any]]:
    """One row a batch, of the states of a replay: its operator, and the calls of the population after it."""
    rows: list[dict[str, Any]] = []
    before: SearchState | None = None
    for state in states:
        if before is not None and state.batch > before.batch:
            rows.append(
                {
                    "batch": before.batch,
                    "operator": before.operator,
                    "generation": before.generation,
                    "calls": state.calls,
                    "population": [program.call for program in state.population],
                    "objectives": [program.objective for program in state.population],
                }
            )
        before = state
    return rows


def write_best(folder: SearchFolder, best: Program) -> None:
    """Replace `best.py` by the best program, under a comment that says what it is."""
    head = f"# call {best.call}, operator {best.operator}, objective {best.objective!r}\n# {best.idea}".rstrip("# \n")
    write_text(folder.best, f"{head}\n{best.code}")
