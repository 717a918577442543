"""Which recorded member of each generation did best, and which worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from esopt_jax.training.jsonl import read


def read_fitness(history: Path) -> dict[int, list[float]]:
    """Fitness of all members, by generation; empty where a run has no history.

    Raises:
        EsoptError: the history is damaged.
    """
    rows = read(history) if history.exists() else []
    return {row["generation"]: row["fitness"] for row in rows if "fitness" in row}


def best_and_worst(
    columns: Mapping[str, Sequence[Any]], fitness: Mapping[int, Sequence[float]]
) -> dict[str, list[dict[str, Any]]]:
    """The best and the worst recorded member of every generation of which two are recorded.

    Fitness decides; where it is not known, the mean reward of the recorded episodes. Of equals the first is taken.

    Args:
        columns: of `page_episodes.EpisodeTable`.
        fitness: of the members, by generation.

    Returns:
        Generation as text -> the best and the worst: member and score.

    Example:
        >>> columns = {"held_out": [0, 0], "generation": [7, 7], "member": [2, 5], "reward": [0.0, 1.0]}
        >>> best_and_worst(columns, {})
        {'7': [{'member': 5, 'score': 1.0}, {'member': 2, 'score': 0.0}]}
        >>> best_and_worst(columns, {7: [0, 0, 0.5, 0, 0, 0.25]})
        {'7': [{'member': 2, 'score': 0.5}, {'member': 5, 'score': 0.25}]}
    """
    rewards: dict[int, dict[int, list[float]]] = {}
    names = ("held_out", "generation", "member", "reward")
    for held_out, generation, member, reward in zip(*(columns.get(name, ()) for name in names), strict=True):
        if not held_out:
            own = rewards.setdefault(generation, {}).setdefault(member, [])
            if reward == reward:  # a fault's reward is NaN
                own.append(reward)
    pairs = {}
    for generation, members in sorted(rewards.items()):
        known = fitness.get(generation, ())
        scores = {
            member: float(known[member]) if 0 <= member < len(known) else fmean(own)
            for member, own in sorted(members.items())
            if 0 <= member < len(known) or own
        }
        if len(scores) > 1:
            best = max(scores, key=scores.__getitem__)
            worst = min((member for member in scores if member != best), key=scores.__getitem__)
            pairs[str(generation)] = [{"member": member, "score": scores[member]} for member in (best, worst)]
    return pairs
