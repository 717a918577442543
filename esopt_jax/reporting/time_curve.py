"""Where the seconds of each generation of a run went, as a stack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.reporting.figure import COLOURS, finish_axes, new_figure, save_figure
from esopt_jax.reporting.run_files import read_metrics, with_numbers
from esopt_jax.training.run_folder import RunFolder

PARTS = ("decode", "prefill", "perturb", "environment", "host", "compile", "update", "eval")


def seconds_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of the parts of a row of metrics.

    Example:
        >>> seconds_of({"time/decode_s": 2.0, "time/update_s": 0.5, "time/rollout_s": 3.0, "wall_s": 9.0})
        {'decode': 2.0, 'update': 0.5}
    """
    return {part: row[f"time/{part}_s"] for part in PARTS if isinstance(row.get(f"time/{part}_s"), int | float)}


def draw_times(run_dir: Path, *, out: Path | None = None) -> Path:
    """Draw the seconds of the run in `run_dir`; evaluations stand beside the generation that follows them.

    Args:
        run_dir: a run folder.
        out: the picture; by default `times.png` in the folder.

    Raises:
        EsoptError: a file of the run is damaged, no generation says where its time went, or the picture cannot be
            written.
    """
    rows = with_numbers(read_metrics(RunFolder(run_dir)), "generation")
    if not any("decode" in seconds_of(row) for row in rows):
        raise EsoptError(f"{str(run_dir)!r} has no generation that says where its time went (time/decode_s)")
    generations = sorted({row["generation"] for row in rows})
    spent = {generation: dict.fromkeys(PARTS, 0.0) for generation in generations}
    for row in rows:
        for part, seconds in seconds_of(row).items():
            spent[row["generation"]][part] += seconds
    figure = new_figure()
    axes = figure.subplots()
    below = [0.0] * len(generations)
    for part, colour in zip(PARTS, COLOURS, strict=True):
        heights = [spent[generation][part] for generation in generations]
        if any(heights):
            axes.bar(generations, heights, bottom=below, color=colour, label=part, width=1.0)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(title=f"{run_dir.absolute().name}: where the time went")
    finish_axes(axes, "seconds")
    axes.legend(loc="best", frameon=False, fontsize="small")
    return save_figure(figure, run_dir / "times.png" if out is None else out)
