"""Which programs are shown, and which are kept. Pure: the seed and the names of a choice decide it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal

from esopt_jax.search.draws import uniform, weighted, word
from esopt_jax.search.program import Direction, Program

Duplicates = Literal["syntax", "objective"]
Population = tuple[Program, ...]
"""Valid programs, the best first."""

_DECIMALS = 5
"""To which the published experiments round objectives."""


def parent_weights(losses: Sequence[float]) -> list[float]:
    """How likely each program of a population is to be shown, up to a factor.

    The one at rank r of N weighs 1 / (r + 1 + N), so the best is shown at most twice as often as the worst. Equal
    programs share the mean of their weights. Source: Liu et al. (2024), Evolution of Heuristics.

    Args:
        losses: ascending.

    Example:
        >>> parent_weights([1.0, 2.0])
        [0.3333333333333333, 0.25]
        >>> parent_weights([1.0, 1.0])
        [0.29166666666666663, 0.29166666666666663]
    """
    count = len(losses)
    found: list[float] = []
    for _, equal in groupby(losses):
        ranks = range(len(found), len(found) + len(list(equal)))
        found += [sum(1 / (rank + 1 + count) for rank in ranks) / len(ranks)] * len(ranks)
    return found


def choose_parents(
    seed: int, batch: int, slot: int, population: Population, *, count: int, direction: Direction, distinct: bool
) -> Population:
    """The programs that one request shows.

    Args:
        seed: of the search.
        batch: names the choice, with `slot`.
        slot: as above.
        population: best first.
        count: how many; fewer where `distinct` ones are too few.
        direction: of the objective.
        distinct: whether a program may be shown only once.
    """
    left = list(population)
    weights = parent_weights([program.loss(direction) for program in left])
    chosen: list[Program] = []
    while left and len(chosen) < count:
        index = weighted(range(len(left)), weights, uniform(seed, "parents", batch, slot, len(chosen)))
        chosen.append(left[index])
        if distinct:
            del left[index], weights[index]
    return tuple(chosen)


def survivors(
    seed: int,
    batch: int,
    population: Iterable[Program],
    offspring: Iterable[Program],
    *,
    size: int,
    direction: Direction,
    duplicates: Duplicates,
) -> Population:
    """The population after a batch: the best `size` of old and new, invalid programs and duplicates left out.

    Args:
        seed: of the search.
        batch: names the draw that breaks ties, so that of equal programs neither old nor new ones are preferred.
        population: the members so far.
        offspring: in the order of their calls.
        size: members at most.
        direction: of the objective.
        duplicates: what makes two programs one: equal syntax trees, or (as published) equal objectives to 5
            decimals; the first stays.
    """
    seen: set[object] = set()
    unlike: list[Program] = []
    for program in (*population, *offspring):
        if not program.valid:
            continue
        same = program.key if duplicates == "syntax" else round(program.loss(direction), _DECIMALS)
        if same not in seen:
            seen.add(same)
            unlike.append(program)
    unlike.sort(key=lambda program: (program.loss(direction), word(seed, "tie", batch, program.call)))
    return tuple(unlike[:size])
