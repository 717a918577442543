"""Groups of runs that differ in nothing but their seed, and what several runs say together about a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import INCIDENTAL, Config, to_dict
from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.reporting.run_files import Row, open_run, read_config, read_metrics

MANY = 5
"""From this many runs on, the interval is that of quantiles; the outermost of fewer runs are all there is to say."""


@dataclass(frozen=True)
class RunRows:
    """The metrics of one run."""

    path: Path
    config: Config
    rows: list[Row]


@dataclass(frozen=True)
class Group:
    """Runs with one config up to the seed; `name` says how it differs from that of the other groups."""

    name: str
    runs: tuple[RunRows, ...]


@dataclass(frozen=True)
class Line:
    """What a group did: `median`, `low` and `high` over its runs at each of `generations`."""

    generations: list[int]
    median: list[float]
    low: list[float]
    high: list[float]


def read_runs(paths: Sequence[Path]) -> list[RunRows]:
    """The runs in `paths`, each once.

    Raises:
        EsoptError: one is no run, or has no metrics yet.
    """
    runs = {}
    for path in paths:
        folder = open_run(path)
        rows = read_metrics(folder)
        if not rows:
            state = "holds no complete row" if folder.metrics.exists() else "does not exist"
            raise EsoptError(f"{folder.metrics} {state} yet: there is nothing to draw")
        runs[path.resolve()] = RunRows(path, read_config(folder), rows)
    return list(runs.values())


def group_runs(runs: Sequence[RunRows]) -> list[Group]:
    """The groups, in the order of their first runs."""
    found: dict[tuple[Any, ...], list[RunRows]] = {}
    for run in runs:
        found.setdefault(tuple(_settings(run.config).items()), []).append(run)
    settings = [dict(key) for key in found]
    varying = [key for key in settings[0] if any(other[key] != settings[0][key] for other in settings)]
    names = [", ".join(f"{key}={own[key]}" for key in varying) for own in settings]
    return [
        Group(name or members[0].config.preset, tuple(members))
        for name, members in zip(names, found.values(), strict=True)
    ]


def check_metric(runs: Sequence[RunRows], name: str) -> None:
    """Refuse a metric that one of the runs never had.

    Raises:
        EsoptError: with the nearest name there is.
    """
    for run in runs:
        known = {key for row in run.rows for key, value in row.items() if _is_number(value)} - {"generation"}
        if name not in known:
            raise EsoptError(f"{str(run.path)!r} has no metric {name!r}; {did_you_mean(name, known)}")


def line_of(group: Group, metric: str) -> Line:
    """Median and interval over the runs of a group, up to the last generation that all of them have reached.

    Generations at which no run has the metric are left out.
    """
    series = [
        {row["generation"]: float(row[metric]) for row in run.rows if _is_number(row.get(metric))} for run in group.runs
    ]
    if not all(series):
        return Line([], [], [], [])
    end = min(max(own) for own in series)
    generations = sorted({generation for own in series for generation in own if generation <= end})
    values = [[own[generation] for own in series if generation in own] for generation in generations]
    outer = 0.0 if len(series) < MANY else 0.1
    return Line(generations, *([float(np.quantile(here, q)) for here in values] for q in (0.5, outer, 1 - outer)))


def interval_name(runs: int) -> str:
    """How the interval over so many runs is made.

    Example:
        >>> [interval_name(n) for n in (1, 3, 5)]
        ['n=1', 'n=3, min..max', 'n=5, 10-90 %']
    """
    return f"n={runs}" + ("" if runs == 1 else ", min..max" if runs < MANY else ", 10-90 %")


def _settings(config: Config) -> dict[str, Any]:
    """Every key that a result may depend on but the seed, flat, values as text."""
    flat = _flat(to_dict(config))
    ignored = (*INCIDENTAL, "es.seed")
    return {key: value for key, value in flat.items() if not any(f"{key}.".startswith(f"{name}.") for name in ignored)}


def _flat(tree: Mapping[str, Any], where: str = "") -> dict[str, str]:
    """`section.key` -> value. A key of the config whose value is a mapping stays one value."""
    flat: dict[str, str] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{key}.") if isinstance(value, dict) and not where else {where + key: str(value)}
    return flat


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
