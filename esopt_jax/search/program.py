"""A program of a search, as it is recorded: what was asked, what was written and what it is worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from esopt_jax.errors import EsoptError

Operator = Literal["i1", "e1", "e2", "m1", "m2"]
Direction = Literal["min", "max"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)


@dataclass(frozen=True)
class Program:
    """The outcome of one call of the language model.

    Attributes:
        call: number of the call in the run, from 0; names the program.
        batch: number of the batch that the call was made in.
        slot: place in the batch.
        attempt: how often the same was asked before, where answers without a program are asked again.
        operator: what was asked for.
        parents: calls of the programs that were shown.
        seed: of the sampling.
        idea: what the program does, in the words of the answer.
        code: its source; empty where the answer held none.
        objective: what it scored, in the task's own units; None where it is invalid.
        reason: why it is invalid; empty where it is valid.
        key: digest of its normalised syntax tree; empty where it does not parse.
        twin: call of the first program with the same tree, whose score this one was given; None for a first one.
        member: which perturbation of the model wrote it; None for the model itself.
        seconds: that scoring took.
    """

    call: int
    batch: int
    slot: int
    attempt: int
    operator: Operator
    parents: tuple[int, ...]
    seed: int
    idea: str
    code: str
    objective: float | None
    reason: str
    key: str
    twin: int | None = None
    member: int | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def valid(self) -> bool:
        """Whether it has an objective."""
        return self.objective is not None

    def loss(self, direction: Direction) -> float:
        """The objective, the smaller the better.

        Raises:
            ValueError: it is invalid.
        """
        if self.objective is None:
            raise ValueError(f"program {self.call} is invalid: {self.reason}")
        return self.objective if direction == "min" else -self.objective


def to_row(program: Program) -> dict[str, Any]:
    """The program as a row of `programs.jsonl`."""
    return {**dataclasses.asdict(program), "parents": list(program.parents), "valid": program.valid}


def from_row(row: Mapping[str, Any]) -> Program:
    """The program in a row.

    Raises:
        EsoptError: a key is missing, unknown, or of another kind.

    Example:
        >>> program = Program(0, 0, 0, 0, "i1", (), 7, "Greedy.", "def f(): ...", 1.5, "", "ab12")
        >>> from_row(to_row(program)) == program
        True
    """
    values = {name: value for name, value in row.items() if name != "valid"}
    wrong = sorted(set(values) ^ {part.name for part in dataclasses.fields(Program)})
    wrong += sorted(name for name, kinds in _KINDS.items() if name in values and type(values[name]) not in kinds)
    if not wrong and (values["operator"] not in OPERATORS or any(type(p) is not int for p in values["parents"])):
        wrong.append("operator or parents")
    if not wrong and (values["objective"] is None) != (row.get("valid") is False):
        wrong.append("valid")
    if wrong:
        raise EsoptError(f"a program's row has missing, unknown or unusable values: {', '.join(wrong)}")
    return Program(**{**values, "parents": tuple(values["parents"])})


_NUMBER, _CALL = (int, float), (int, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("call", "batch", "slot", "attempt", "seed"), (int,)),
    **dict.fromkeys(("operator", "idea", "code", "reason", "key"), (str,)),
    **dict.fromkeys(("twin", "member"), _CALL),
    "parents": (list,),
    "objective": (*_NUMBER, type(None)),
    "seconds": _NUMBER,
}
