"""How a search goes: the numbers that decide which call asks for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from esopt_jax.search.program import Operator
from esopt_jax.search.rewards import Rule
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


@dataclass(frozen=True)
class EvolveConfig:
    """ES on the weights of the model that writes: each program of a batch is written by another member.

    The batches of m1 and m2 are written so, or all those of `sample`; an update follows each that is whole. The
    defaults are ours; `experiments/ahd` has the published ones.

    Attributes:
        enabled: whether the weights change at all.
        seed: of the noise.
        sigma: standard deviation of the perturbation, in the first generation of the search.
        sigma_end: the same in the last one.
        sigma_schedule: the way between.
        alpha: learning rate.
        rewards: `ranked`, or one of the `published` rules, see `rewards`.
        parents: how many requests a batch is made of: members share them in equal parts, parents and all. 0: each
            member has its own.
        common_random_numbers: whether members with the same request also have the same seed.
        plan: `full` or `low_rank` noise.
        rank: of the latter.
        antithetic: members 2k and 2k+1 are mirror images.
        members_per_pass: members held at once; 0 for all.
        master: format of the weights.
        scope: which weights are tuned.
        control: `shuffled_rewards` gives each member the reward of another, so that nothing can be learnt.
    """

    enabled: bool = False
    seed: int = 0
    sigma: float = 1e-3
    sigma_end: float = 2.5e-4
    sigma_schedule: Literal["constant", "linear", "cosine"] = "cosine"
    alpha: float = 5e-4
    rewards: Rule = "ranked"
    parents: int = 2
    common_random_numbers: bool = True
    plan: Literal["full", "low_rank"] = "full"
    rank: int = 4
    antithetic: bool = False
    members_per_pass: int = 0
    master: Literal["float32", "split", "bfloat16"] = "float32"
    scope: str = "full"
    control: Literal["none", "shuffled_rewards"] = "none"


FIXED = EvolveConfig()
"""The weights stay as they are."""

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


def evolves(search: SearchConfig, es: EvolveConfig, operator: Operator) -> bool:
    """Whether members write the programs of an operator."""
    return es.enabled and (search.method == "sample" or operator in ("m1", "m2"))


def group_of(search: SearchConfig, es: EvolveConfig, operator: Operator, slot: int) -> int:
    """Which request a slot of a batch belongs to: all its own, unless members share requests.

    Example:
        >>> [group_of(SearchConfig(), EvolveConfig(enabled=True), "m1", slot) for slot in range(10)]
        [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
        >>> [group_of(SearchConfig(), FIXED, "m1", slot) for slot in range(3)]
        [0, 1, 2]
    """
    if not (evolves(search, es, operator) and es.parents):
        return slot
    return slot * es.parents // asked_for(search, operator)


def updates_in(search: SearchConfig) -> int:
    """Updates in a generation of the search."""
    return 1 if search.method == "sample" else 2
