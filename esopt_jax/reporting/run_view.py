"""The state of a run as rich draws it in a terminal: a screen that is replaced every few seconds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from esopt_jax.reporting.run_files import Row
from esopt_jax.reporting.run_state import RunState, evaluation_line, health_text, number, status_text

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

_GENERATIONS, _EVALUATIONS, _WIDTH = 8, 6, 60
_BARS = "▁▂▃▄▅▆▇█"
_STYLES = {"running": "cyan", "finished": "green", "stopped": "yellow"}
_COLUMNS = (
    ("mean", "fitness/mean", ".3f"),
    ("best", "fitness/best", ".3f"),
    ("std", "fitness/std", ".3f"),
    ("sigma", "sigma", ".3g"),
    ("turns", "turns/mean", ".1f"),
    ("invalid", "invalid_action_rate", ".3f"),
    ("faults", "faults", "d"),
    ("tokens/s", "tokens_per_s", ",.0f"),
)


def draw_state(state: RunState) -> Group:
    """Status, the curve so far, the last generations, held-out scores and the health of the run."""
    from rich.console import Group
    from rich.text import Text

    style = _STYLES.get(state.status, "")
    parts: list[RenderableType] = [Text(f"{state.name}: {status_text(state)}", style=f"bold {style}".strip())]
    if state.note:
        parts.append(Text(state.note, style="yellow"))
    if state.generations:
        through = round(_WIDTH * min(1, state.done / state.generations))
        parts.append(Text("━" * through, style=style).append("━" * (_WIDTH - through), style="dim"))
    if population := state.population:
        curve = sparkline([row["fitness/mean"] for row in population], _WIDTH)
        parts += [Text(f"{curve}  fitness, mean"), _generations(population[-_GENERATIONS:])]
    parts += [Text(evaluation_line(row)) for row in _first_and_last(state.evaluations)]
    return Group(*parts, *([Text(health_text(state), style="dim")] if state.rows else []))


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Up to `width` bars between the least and the greatest value; each is the mean of those it stands for.

    Example:
        >>> sparkline([0, 1, None, 2, 3], 60), sparkline([0, 0, 1, 1], 2), sparkline([5], 9)
        ('▁▃▆█', '▁█', '▁')
    """
    known = [value for value in values if value is not None]
    bars = min(width, len(known))
    cuts = [len(known) * place // bars for place in range(bars + 1)] if bars else [0]
    means = [sum(known[a:b]) / (b - a) for a, b in itertools.pairwise(cuts)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    top = len(_BARS) - 1
    return "".join(_BARS[round((mean - low) / (high - low) * top) if high > low else 0] for mean in means)


def _generations(rows: Sequence[Row]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("gen", *(title for title, _, _ in _COLUMNS)):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(str(row["generation"] + 1), *(number(row, key, form) for _, key, form in _COLUMNS))
    return table


def _first_and_last(rows: Sequence[Row]) -> list[Row]:
    """All of few rows; of many the first, which is the base model's, and the last ones."""
    return [*rows] if len(rows) <= _EVALUATIONS else [rows[0], *rows[1 - _EVALUATIONS :]]
