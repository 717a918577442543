"""Objective against calls of the language model, of one search or of several: a line a config, over its seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.reporting.figure import COLOURS, new_figure, save_figure
from esopt_jax.reporting.groups import MANY, interval_name
from esopt_jax.search.config import AhdConfig, load_ahd_config
from esopt_jax.search.run_files import SearchFolder, curve_rows, read_recorded
from esopt_jax.search.tasks.registry import find_task

_INCIDENTAL = ("name", "description", "progress", "search.seed", "es.seed", "task.workers", "task.unsafe")


@dataclasses.dataclass(frozen=True)
class Curve:
    """Searches of one config up to the seed.

    Attributes:
        name: how it differs from the others.
        runs: how many.
        calls: `[calls]` int64, up to the last call that all of them have made.
        median: `[calls]` of the best objective so far; NaN until every search has one.
        low: the same of the interval's lower end.
        high: the same of its upper end.
    """

    name: str
    runs: int
    calls: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw_searches(folders: Sequence[Path], *, out: Path | None = None) -> Path:
    """Draw searches of one task.

    Args:
        folders: of the searches; those that differ in nothing but their seeds are one line.
        out: the picture; by default `curve.png` in the folder of a single search, else `searches.png` here.

    Returns:
        The path of the picture.

    Raises:
        EsoptError: a folder holds no search, a search has no program yet, or the tasks differ.
    """
    curves, task = read_curves(folders)
    figure = new_figure()
    axes: Any = figure.subplots()
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        label = f"{curve.name} ({interval_name(curve.runs)})"
        axes.plot(curve.calls, curve.median, color=colour, lw=1.8, drawstyle="steps-post", label=label)
        if curve.runs > 1:
            axes.fill_between(curve.calls, curve.low, curve.high, color=colour, alpha=0.15, lw=0, step="post")
    axes.set(xlabel="calls of the language model", ylabel="best objective so far, training instances", title=task)
    axes.grid(alpha=0.25)
    axes.legend(loc="best", frameon=False)
    single = folders[0] / "curve.png" if len(folders) == 1 else Path("searches.png")
    return save_figure(figure, single if out is None else out)


def read_curves(folders: Sequence[Path]) -> tuple[list[Curve], str]:
    """The curves of searches, and their task; raises as `draw_searches`."""
    grouped: dict[tuple[tuple[str, str], ...], list[np.ndarray]] = {}
    tasks: dict[str, None] = {}
    for path in folders:
        folder = SearchFolder(path)
        if not folder.config.is_file():
            raise EsoptError(f"{str(path)!r} holds no search: it has no {folder.config.name}")
        config = load_ahd_config(folder.config)
        tasks[f"{config.task.name}, {find_task(config.task.name).direction} of the objective"] = None
        programs = read_recorded(folder).programs
        if not programs:
            raise EsoptError(f"the search in {str(path)!r} has no program yet: there is nothing to draw")
        rows = curve_rows(programs, find_task(config.task.name).direction)
        bests = np.array([np.nan if best is None else best for _, _, best in rows])
        grouped.setdefault(_settings(config), []).append(bests)
    if len(tasks) > 1:
        raise EsoptError(f"the searches are of several tasks ({'; '.join(tasks)}): draw those of one task together")
    keys = [dict(key) for key in grouped]
    varying = [name for name in keys[0] if any(other[name] != keys[0][name] for other in keys)]
    names = [", ".join(f"{name}={key[name]}" for name in varying) or key["search.method"] for key in keys]
    return [_curve(name, runs) for name, runs in zip(names, grouped.values(), strict=True)], next(iter(tasks))


def _curve(name: str, runs: list[np.ndarray]) -> Curve:
    shortest = min(map(len, runs))
    bests = np.stack([run[:shortest] for run in runs])
    outer = 0.0 if len(runs) < MANY else 0.1
    low, median, high = (np.quantile(bests, q, axis=0) for q in (outer, 0.5, 1 - outer))
    return Curve(name, len(runs), np.arange(1, shortest + 1), median, low, high)


def _settings(config: AhdConfig) -> tuple[tuple[str, str], ...]:
    """Every key that a result may depend on but the seeds, as text."""
    found: list[tuple[str, str]] = []
    for section, value in dataclasses.asdict(config).items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        found += [(f"{section}.{key}".rstrip("."), str(part)) for key, part in parts]
    return tuple((key, value) for key, value in found if key not in _INCIDENTAL)
