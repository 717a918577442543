"""What a person sees while a search goes on: a bar in a terminal, one log line a batch elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

from esopt_jax.search.state import SearchState

log = logging.getLogger(__name__)

Report = Callable[[SearchState], None]
"""Takes the state after a batch."""


@contextmanager
def progress(mode: Literal["auto", "rich", "plain", "none"], budget: int, *, done: int = 0) -> Iterator[Report]:
    """Yield the function that is told the state after every batch.

    Args:
        mode: `auto` is `rich` when standard error is a terminal, else `plain`.
        budget: calls that count.
        done: of these, how many were made by earlier processes.
    """
    if mode == "none":
        yield lambda state: None
    elif mode == "rich" or (mode == "auto" and _terminal()):
        with _bar(budget, done) as report:
            yield report
    else:
        start = time.perf_counter()
        yield lambda state: log.info(plain_line(state, budget, time.perf_counter() - start, earlier=done))


def plain_line(state: SearchState, budget: int, elapsed_s: float, *, earlier: int = 0) -> str:
    """One line about the state; `earlier` calls do not count in `elapsed_s`.

    Example:
        >>> plain_line(SearchState(calls=30, counted=20, batch=3, generation=0, operator="e2"), 100, 20.0)
        'batch 3  calls 20/100  best none  population 0  ETA 0:01:20'
    """
    made = state.counted - earlier
    eta = str(timedelta(seconds=round(elapsed_s / made * (budget - state.counted)))) if made > 0 else "unknown"
    parts = [f"batch {state.batch}", f"calls {state.counted}/{budget}", best_text(state)]
    return "  ".join([*parts, f"population {len(state.population)}", f"ETA {eta}"])


def best_text(state: SearchState) -> str:
    """The best objective."""
    best = None if state.best is None else state.best.objective
    return "best none" if best is None else f"best {best:.5f}"


def _terminal() -> bool:
    from rich.console import Console

    return Console(stderr=True).is_terminal


@contextmanager
def _bar(budget: int, done: int) -> Iterator[Report]:
    from rich import progress as part
    from rich.console import Console

    columns = (part.MofNCompleteColumn(), part.BarColumn(bar_width=24), "{task.fields[best]}")
    with part.Progress(*columns, "ETA", part.TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("search", total=budget, completed=done, best="")
        yield lambda state: bar.update(task, completed=state.counted, best=best_text(state))
