"""The reward curve of one run as a picture: population fitness, and the held-out solve rate before and after.

Reads `metrics.jsonl` and `summary.json` of a run folder and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esopt_jax.reporting.figure import finish_axes, new_figure, save_figure
from esopt_jax.reporting.run_files import read_metrics, read_summary, with_numbers
from esopt_jax.training.run_folder import RunFolder

_POPULATION, _BEST, _HELD_OUT, _BASE = "#4477aa", "#99bbdd", "#cc3311", "#777777"


def draw_curve(run_dir: Path, *, out: Path | None = None) -> Path:
    """Draw the run in `run_dir`.

    Args:
        run_dir: a run folder.
        out: the picture; by default `reward_curve.png` in the folder.

    Returns:
        The path of the picture.

    Raises:
        EsoptError: a file of the run is damaged, or the picture cannot be written.
    """
    folder = RunFolder(run_dir)
    rows, summary = read_metrics(folder), read_summary(folder) or {}
    figure = new_figure()
    axes = figure.subplots()
    _population(axes, with_numbers(rows, "fitness/mean", "fitness/best"))
    _held_out(axes, with_numbers(rows, "eval/solve_rate", "eval/ci_low", "eval/ci_high"))
    _base_band(axes, summary.get("base"))
    axes.set(title=_title(summary, run_dir))
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    finish_axes(axes, "solve rate / mean reward")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", frameon=False)
    return save_figure(figure, run_dir / "reward_curve.png" if out is None else out)


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
    if _mean(base) is not None:
        axes.axhline(base["mean"], color=_BASE, lw=1, ls="--", label="base model, held-out")
        axes.axhspan(*base["ci95"], color=_BASE, alpha=0.12, lw=0)


def _title(summary: Mapping[str, Any], run_dir: Path) -> str:
    if not summary:
        return run_dir.absolute().name
    title = f"{summary.get('preset')}: {summary.get('task')}"
    base, final = _mean(summary.get("base")), _mean(summary.get("final"))
    if base is not None and final is not None:
        title += f", {base:.2f} to {final:.2f} held-out"
    return title if summary.get("status") == "finished" else f"{title} ({summary.get('status')})"


def _mean(record: Any) -> float | None:
    """The mean of a result, if there is one."""
    mean = record.get("mean") if isinstance(record, Mapping) else None
    return float(mean) if isinstance(mean, int | float) else None
