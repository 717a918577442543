"""The reward curve of one run as a PNG: population fitness, and the held-out solve rate before and after.

Reads `metrics.jsonl` and `summary.json` of a run folder and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_POPULATION, _BEST, _HELD_OUT, _BASE = "#4477aa", "#99bbdd", "#cc3311", "#777777"


def draw_curve(run_dir: Path, *, out: Path | None = None) -> Path:
    """Draw the run in `run_dir`.

    Args:
        run_dir: a run folder.
        out: the PNG; by default `reward_curve.png` in the folder.

    Returns:
        The path of the PNG.
    """
    from matplotlib.figure import Figure  # draws with Agg; pyplot would keep global state and pick a window system
    from matplotlib.ticker import MaxNLocator

    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(7.2, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    _population(axes, [row for row in rows if "fitness/mean" in row])
    _held_out(axes, [row for row in rows if "eval/solve_rate" in row])
    _base_band(axes, summary.get("base"))
    axes.set(xlabel="generation", ylabel="solve rate / mean reward", title=_title(summary))
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", frameon=False)
    out = run_dir / "reward_curve.png" if out is None else out
    figure.savefig(out)
    return out


def _population(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        at = [row["generation"] for row in rows]
        axes.plot(at, [row["fitness/best"] for row in rows], color=_BEST, lw=1.2, label="population best")
        axes.plot(at, [row["fitness/mean"] for row in rows], color=_POPULATION, lw=2, label="population mean")


def _held_out(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        mean = [row["eval/solve_rate"] for row in rows]
        below = [max(0.0, m - row["eval/ci_low"]) for m, row in zip(mean, rows, strict=True)]
        above = [max(0.0, row["eval/ci_high"] - m) for m, row in zip(mean, rows, strict=True)]
        axes.errorbar(
            [row["generation"] for row in rows],
            mean,
            yerr=(below, above),
            color=_HELD_OUT,
            fmt="o-" if len(rows) > 2 else "o",
            ms=5,
            lw=1,
            capsize=4,
            zorder=5,
            label="held-out tasks, 95 % interval",
        )


def _base_band(axes: Any, base: Mapping[str, Any] | None) -> None:
    if base is not None and base["mean"] is not None:
        axes.axhline(base["mean"], color=_BASE, lw=1, ls="--", label="base model, held-out")
        axes.axhspan(*base["ci95"], color=_BASE, alpha=0.12, lw=0)


def _title(summary: Mapping[str, Any]) -> str:
    title = f"{summary['preset']}: {summary['task']}"
    final = summary.get("final")
    if final is not None and final["mean"] is not None:
        title += f", {summary['base']['mean']:.2f} to {final['mean']:.2f} held-out"
    return title if summary["status"] == "finished" else f"{title} ({summary['status']})"
