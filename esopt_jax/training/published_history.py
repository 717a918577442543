"""Read the `history.json` of the published PyTorch code as a record: what was done, not weights.

The file is a JSON list: a row `{"config": {...}}`, evaluations with generation -1, then one row a generation with its
seeds and rewards, and markers where a run went on. Its noise is that of CUDA kernels of PyTorch, keyed on the parameter
names of its backend: it cannot be drawn again here, so such a file says what happened and rebuilds nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.errors import EsoptError

_SHOWN = 5


@dataclass(frozen=True)
class PublishedUpdate:
    """One generation: `seeds` and `rewards` are `[P]`, in the order of the members."""

    generation: int
    sigma: float | None
    alpha: float | None
    seeds: tuple[int, ...]
    rewards: np.ndarray
    normalization: str | None


@dataclass(frozen=True)
class PublishedHistory:
    """What a file says.

    Attributes:
        config: its config row; empty where there is none.
        updates: generations that were applied, in the order of the file.
        evaluations: rows that hold an evaluation.
        resumes: markers of a process that went on.
        oddities: what does not fit together, one sentence each.
    """

    config: Mapping[str, Any]
    updates: tuple[PublishedUpdate, ...]
    evaluations: int
    resumes: int
    oddities: tuple[str, ...] = field(default=())


def read_published(path: Path) -> PublishedHistory:
    """The record in a published `history.json`.

    Raises:
        EsoptError: the file cannot be read or is of another format.
    """
    rows = _rows(path)
    config: dict[str, Any] = {}
    updates: list[PublishedUpdate] = []
    evaluations = resumes = 0
    odd: list[str] = []
    for number, row in enumerate(rows):
        if isinstance(row.get("config"), dict):
            odd += ["there is more than one config row; the last one counts"] if config else []
            config = row["config"]
        elif "resume" in row:
            resumes += 1
        elif row.get("update_applied") is False:
            odd.append(f"row {number} says that its update was not applied")
        elif "seeds" in row or "rewards" in row:
            updates.append(_update(path, number, row, len(updates)))
        evaluations += any(key == "eval" or key.endswith("_eval") for key in row)
    if not config and not updates:
        raise EsoptError(f"{path} holds neither a config nor an update row; it is no published history.json")
    return PublishedHistory(config, tuple(updates), evaluations, resumes, tuple(odd + _oddities(config, updates)))


def describe(history: PublishedHistory) -> list[str]:
    """Lines that say what a record holds."""
    updates = history.updates
    lines = [f"{len(updates)} generations applied, {history.evaluations} evaluations, {history.resumes} resumes"]
    if updates:
        lines.append(f"generations   {updates[0].generation} .. {updates[-1].generation}")
        lines.append(f"members       {_span([len(update.seeds) for update in updates])}")
        lines.append(f"seeds         {_listed([seed for update in updates for seed in update.seeds])}")
        for name in ("sigma", "alpha"):
            lines.append(f"{name}         {_span([getattr(update, name) for update in updates])}")
        lines.append(f"rewards       {_rewards(updates)}")
        shaping = sorted({str(update.normalization) for update in updates})
        lines.append(f"normalisation {', '.join(shaping)}")
    lines += [f"config        {key} = {_shown(value)}" for key, value in sorted(history.config.items())]
    lines += [f"odd           {text}" for text in history.oddities]
    lines.append(
        "This is a record. Its noise came from CUDA kernels of PyTorch and cannot be drawn again here, so no weights "
        "can be rebuilt from it."
    )
    return lines


def as_dict(history: PublishedHistory) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "config": dict(history.config),
        "updates": [
            {
                "generation": update.generation,
                "sigma": update.sigma,
                "alpha": update.alpha,
                "seeds": list(update.seeds),
                "rewards": [reward if math.isfinite(reward) else None for reward in update.rewards.tolist()],
                "reward_normalization": update.normalization,
            }
            for update in history.updates
        ],
        "evaluations": history.evaluations,
        "resumes": history.resumes,
        "oddities": list(history.oddities),
        "replayable": False,
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else " ".join(str(fault).split())
        raise EsoptError(f"{path} cannot be read as a published history.json: {reason}") from None
    if not isinstance(tree, list) or not all(isinstance(row, dict) for row in tree):
        kind = f"a list of {len(tree)} items" if isinstance(tree, list) else type(tree).__name__
        hint = "; a history of this package is JSON lines: esopt replay reads it" if isinstance(tree, dict) else ""
        raise EsoptError(f"{path} holds {kind}; a published history.json is a list of objects{hint}")
    return tree


def _update(path: Path, number: int, row: Mapping[str, Any], index: int) -> PublishedUpdate:
    seeds, rewards = row.get("seeds"), row.get("rewards")
    good = (
        isinstance(seeds, list)
        and isinstance(rewards, list)
        and len(seeds) == len(rewards) > 0
        and all(type(seed) is int for seed in seeds)
        and all(_is_number(reward) for reward in rewards)
    )
    generation = row.get("generation", index)
    if not good or type(generation) is not int:
        raise EsoptError(
            f"{path}, row {number}: an update needs a whole-numbered generation, and seeds and rewards, lists of "
            "numbers of one length"
        )
    sigma, alpha = (float(row[name]) if _is_number(row.get(name)) else None for name in ("sigma", "alpha"))
    normalization = row.get("reward_normalization")
    return PublishedUpdate(
        generation=generation,
        sigma=sigma,
        alpha=alpha,
        seeds=tuple(seeds),
        rewards=np.asarray(rewards, np.float64),
        normalization=None if normalization is None else str(normalization),
    )


def _oddities(config: Mapping[str, Any], updates: Sequence[PublishedUpdate]) -> list[str]:
    found = []
    if not config:
        found.append("there is no config row")
    generations = [update.generation for update in updates]
    if generations and generations[0] != 0:
        found.append(f"the first generation is {generations[0]}, not 0")
    jumps = [f"{b} follows {a}" for a, b in pairwise(generations) if b != a + 1]
    if jumps:
        found.append(f"generations are not contiguous: {_listed(jumps)}")
    sizes = {len(update.seeds) for update in updates}
    population = config.get("population")
    if len(sizes) > 1:
        found.append(f"populations differ between generations: {_listed(sorted(sizes))}")
    elif sizes and type(population) is int and sizes != {population}:
        found.append(f"the config says population {population}, the rows have {min(sizes)} members")
    alpha = config.get("alpha")
    alphas = {update.alpha for update in updates}
    if updates and _is_number(alpha) and alphas != {float(alpha)}:
        found.append(f"the config says alpha {alpha:g}, the rows have {_span([u.alpha for u in updates])}")
    repeated = len([s for u in updates for s in u.seeds]) - len({s for u in updates for s in u.seeds})
    if repeated:
        found.append(f"{repeated} seeds are used more than once")
    if lost := sum(not math.isfinite(reward) for update in updates for reward in update.rewards):
        found.append(f"{lost} rewards are not finite")
    if flat := [update.generation for update in updates if (update.rewards == update.rewards[0]).all()]:
        found.append(f"all rewards are equal, so nothing was learnt, in generations {_listed(flat)}")
    return found


def _rewards(updates: Sequence[PublishedUpdate]) -> str:
    finite = [update.rewards[np.isfinite(update.rewards)] for update in updates]
    finite = [rewards for rewards in finite if len(rewards)]
    if not finite:
        return "none is finite"
    first, last = finite[0].mean(), finite[-1].mean()
    low, high = min(rewards.min() for rewards in finite), max(rewards.max() for rewards in finite)
    return f"mean {first:.4g} first, {last:.4g} last; {low:.4g} .. {high:.4g} over all members"


def _span(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "not given"
    text = f"{known[0]:.6g}" if len(set(known)) == 1 else f"{known[0]:.6g} first, {known[-1]:.6g} last"
    return text if len(known) == len(values) else f"{text} ({len(values) - len(known)} rows give none)"


def _listed(items: Sequence[Any]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(map(str, items[:_SHOWN])) + more


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)
