"""What a person sees while a run goes on: a rich bar in a terminal, one log line a generation elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

log = logging.getLogger(__name__)

Report = Callable[[Mapping[str, Any]], None]
"""Takes the metrics row of a finished generation."""


@contextmanager
def progress(mode: Literal["auto", "rich", "plain", "none"], generations: int, *, done: int = 0) -> Iterator[Report]:
    """Yield the function that is told about every finished generation.

    Args:
        mode: `auto` is `rich` when standard error is a terminal, else `plain`.
        generations: how many there will be, for the bar and the ETA.
        done: how many there are already, of a run that goes on.
    """
    if mode == "none":
        yield lambda row: None
    elif mode == "rich" or (mode == "auto" and _terminal()):
        with _bar(generations, done) as report:
            yield report
    else:
        start = time.perf_counter()
        yield lambda row: log.info(plain_line(row, generations, time.perf_counter() - start, earlier=done))


def plain_line(row: Mapping[str, Any], generations: int, elapsed_s: float, *, earlier: int = 0) -> str:
    """One line about one generation; `earlier` ones do not count in `elapsed_s`.

    Example:
        >>> row = {"generation": 9, "fitness/mean": 0.25, "fitness/best": 0.5, "sigma": 0.02, "tokens_per_s": 8123.4}
        >>> plain_line(row, 40, 20.0)
        'generation 10/40  fitness 0.250  best 0.500  sigma 0.02  8.1k tokens/s  ETA 0:01:00'
        >>> row |= {"time/prefill_s": 1.2, "time/decode_s": 2.5, "time/rollout_s": 4.0, "time/update_s": 1.0}
        >>> plain_line(row, 40, 20.0)[57:]
        '8.1k tokens/s (decode 50 %, prefill 24 %)  ETA 0:01:00'
    """
    done = row["generation"] + 1
    eta = timedelta(seconds=round(elapsed_s / (done - earlier) * (generations - done)))
    speed = f"{_speed(row)}{_most(row)}"
    return f"generation {done}/{generations}  {_scores(row)}{_sigma(row)}  {speed}  ETA {eta}"


def _scores(row: Mapping[str, Any]) -> str:
    return f"fitness {row['fitness/mean']:.3f}  best {row['fitness/best']:.3f}"


def _sigma(row: Mapping[str, Any]) -> str:
    return f"  sigma {row['sigma']:.3g}" if "sigma" in row else ""  # of evolution alone


def _speed(row: Mapping[str, Any]) -> str:
    return f"{row['tokens_per_s'] / 1000:.1f}k tokens/s"


def _most(row: Mapping[str, Any]) -> str:
    """The two phases that took most of the generation's time."""
    if "time/decode_s" not in row:
        return ""
    whole = row["time/rollout_s"] + row["time/update_s"]
    phases = ("perturb", "prefill", "decode", "environment", "host", "compile", "update")
    spent = {phase: row[f"time/{phase}_s"] / whole for phase in phases if f"time/{phase}_s" in row}
    largest = sorted(spent, key=spent.__getitem__, reverse=True)[:2]
    return f" ({', '.join(f'{phase} {spent[phase]:.0%}'.replace('%', ' %') for phase in largest)})"


def _terminal() -> bool:
    from rich.console import Console

    return Console(stderr=True).is_terminal


@contextmanager
def _bar(generations: int, done: int) -> Iterator[Report]:
    from rich import progress as part
    from rich.console import Console

    columns = (  # 80 characters in all
        part.MofNCompleteColumn(),
        part.BarColumn(bar_width=12),
        "{task.fields[scores]}",
        "{task.fields[speed]}",
        "ETA",
        part.TimeRemainingColumn(),
    )
    with part.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("train", total=generations, completed=done, scores="", speed="compiling")
        yield lambda row: bar.update(task, advance=1, scores=_scores(row), speed=_speed(row))
