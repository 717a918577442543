"""Several runs in one picture: a line a group, the median over its seeds within an interval over them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.reporting.figure import COLOURS, finish_axes, new_figure, save_figure
from esopt_jax.reporting.groups import Group, Line, RunRows, check_metric, group_runs, interval_name, line_of

_PANELS = (("fitness/mean", "population fitness, mean"), ("eval/solve_rate", "held-out solve rate"))


def draw_runs(runs: Sequence[RunRows], out: Path) -> Path:
    """Population fitness and held-out solve rate of `runs`, grouped; a panel of which there is nothing is left out.

    Args:
        runs: at least one.
        out: the picture.

    Raises:
        EsoptError: there is nothing to draw, or the picture cannot be written.
    """
    groups = group_runs(runs)
    panels = [
        (metric, label) for metric, label in _PANELS if any(line_of(group, metric).generations for group in groups)
    ]
    if not panels:
        raise EsoptError("these runs have no generation and no evaluation yet: there is nothing to draw")
    return _draw(groups, panels, out)


def draw_metric(runs: Sequence[RunRows], metric: str, out: Path) -> Path:
    """One metric of `runs`, grouped.

    Raises:
        EsoptError: a run never had that metric, or the picture cannot be written.
    """
    check_metric(runs, metric)
    return _draw(group_runs(runs), [(metric, metric)], out)


def _draw(groups: Sequence[Group], panels: Sequence[tuple[str, str]], out: Path) -> Path:
    figure = new_figure(width=7.2 if len(panels) < 2 else 11)
    handles = {}  # one legend below all panels: a name may be long
    for axes, (metric, label) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for place, group in enumerate(groups):
            line = line_of(group, metric)
            if line.generations:
                handles[_label(group)] = _show(axes, line, len(group.runs), COLOURS[place % len(COLOURS)])
        finish_axes(axes, label)
    figure.suptitle(_title(groups))
    width = 60 if len(panels) < 2 else 100
    labels = [textwrap.fill(label, width) for label in handles]
    figure.legend(handles.values(), labels, loc="outside lower center", frameon=False, fontsize="small")
    return save_figure(figure, out)


def _show(axes: Any, line: Line, runs: int, colour: str) -> Any:
    """Draw a line within its interval; returns what the legend shows."""
    marker = "o" if len(line.generations) < 30 else ""
    if runs > 1:
        axes.fill_between(line.generations, line.low, line.high, color=colour, alpha=0.18, lw=0)
    return axes.plot(line.generations, line.median, color=colour, lw=1.8, marker=marker, ms=4)[0]


def _label(group: Group) -> str:
    return f"{group.name} ({interval_name(len(group.runs))})"


def _title(groups: Sequence[Group]) -> str:
    tasks = {run.config.env.name for group in groups for run in group.runs}
    presets = {run.config.preset for group in groups for run in group.runs}
    name = presets.pop() if len(presets) == 1 else f"{len(groups)} groups"
    many = max(len(group.runs) for group in groups) > 1
    return f"{name}: {', '.join(sorted(tasks))}" + (", median over seeds" if many else "")
