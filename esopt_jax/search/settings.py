"""How a search goes: the numbers that decide which call asks for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from esopt_jax.search.program import Operator
from esopt_jax.search.selection import Duplicates


@dataclass(frozen=True)
class SearchConfig:
    """A search. The defaults are ours; `experiments/ahd` has the published ones.

    Attributes:
        method: `eoh` evolves a population; `sample` draws programs that know of no other.
        seed: of every choice and every request.
        budget: calls of the language model, exactly.
        accounting: `every_call` counts them all; `published` leaves out the first batch of `eoh` and whatever is asked
            again.
        population_size: programs that are kept, and asked for by i1, e1 and e2.
        mutations: m1 and m2 ask for so many times `population_size`.
        parents: programs that e1 and e2 show.
        distinct_parents: whether those must be different ones.
        batch_size: programs that `sample` asks for at once.
        initial_batches: i1 is repeated so often at most while the population is not full, and in any case while it is
            empty.
        retries: how often an answer without a program is asked for again.
        duplicates: what makes two programs one in the population, see `selection.survivors`.
    """

    method: Literal["eoh", "sample"] = "eoh"
    seed: int = 0
    budget: int = 1000
    accounting: Literal["every_call", "published"] = "every_call"
    population_size: int = 10
    mutations: float = 1.0
    parents: int = 2
    distinct_parents: bool = True
    batch_size: int = 20
    initial_batches: int = 2
    retries: int = 0
    duplicates: Duplicates = "syntax"


CYCLE: tuple[Operator, ...] = ("e1", "e2", "m1", "m2")
"""The operators of a generation, in their order; each sees what the one before has left."""


def asked_for(search: SearchConfig, operator: Operator) -> int:
    """Programs in a batch of an operator.

    Example:
        >>> [asked_for(SearchConfig(mutations=3), operator) for operator in CYCLE]
        [10, 10, 30, 30]
    """
    if search.method == "sample":
        return search.batch_size
    return round(search.population_size * search.mutations) if operator in ("m1", "m2") else search.population_size


def shown(search: SearchConfig, operator: Operator) -> int:
    """Parents that an operator shows."""
    return {"i1": 0, "e1": search.parents, "e2": search.parents, "m1": 1, "m2": 1}[operator]


def generations(search: SearchConfig) -> int:
    """Rounds of all operators that the budget lasts for, the last one perhaps in part; of `sample`, its batches.

    Example:
        >>> [generations(SearchConfig(budget=budget, mutations=k)) for budget, k in [(1000, 1), (2000, 3)]]
        [25, 25]
    """
    if search.method == "sample":
        return -(-search.budget // search.batch_size)
    return -(-search.budget // sum(asked_for(search, operator) for operator in CYCLE))
