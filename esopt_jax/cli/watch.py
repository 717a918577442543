"""`esopt watch`: look at a run while it goes on, from its files alone."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from esopt_jax.errors import EsoptError

if TYPE_CHECKING:
    from rich.console import Console

    from esopt_jax.reporting.run_state import RunState

_DESCRIPTION = """\
Show where a run is: a live view in a terminal, a line for every generation and evaluation elsewhere. It ends with the
run, or with Ctrl-C, and does nothing to it."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("watch", help="look at a run while it goes on", description=_DESCRIPTION)
    parser.add_argument("run", metavar="RUN", type=Path, help="its folder")
    parser.add_argument("--once", action="store_true", help="print where it is now, and end")
    parser.add_argument(
        "--interval-s", type=float, default=2.0, metavar="S", help="seconds between looks (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Watch until the run is over."""
    if not (args.interval_s > 0 and math.isfinite(args.interval_s)):
        raise EsoptError(f"--interval-s is {args.interval_s}; it must be a number of seconds above 0")
    from rich.console import Console

    from esopt_jax.reporting.run_state import read_state

    console = Console(highlight=False)
    state = read_state(args.run)  # what is no run is refused before anything is drawn
    try:
        if args.once:
            _print_once(state, console)
        else:
            (_live if console.is_terminal else _plain)(args.run, args.interval_s, console)
    except KeyboardInterrupt:
        pass
    except EsoptError:
        if args.run.is_dir():
            raise
        raise EsoptError(f"run folder {str(args.run)!r} was removed while it was watched") from None
    return 0


def _print_once(state: RunState, console: Console) -> None:
    from rich.text import Text

    from esopt_jax.reporting.run_state import state_lines
    from esopt_jax.reporting.run_view import draw_state

    parts = [draw_state(state)] if console.is_terminal else map(Text, state_lines(state))
    console.print(*parts, sep="\n", soft_wrap=not console.is_terminal)


def _live(path: Path, interval_s: float, console: Console) -> None:
    from rich.live import Live

    from esopt_jax.reporting.run_state import read_state
    from esopt_jax.reporting.run_view import draw_state

    with Live(console=console, auto_refresh=False) as live:
        while True:
            state = read_state(path)
            live.update(draw_state(state), refresh=True)
            if state.over:
                return
            time.sleep(interval_s)


def _plain(path: Path, interval_s: float, console: Console) -> None:
    """A line for whatever is new."""
    from esopt_jax.reporting.run_state import evaluation_line, generation_line, health_text, read_state, status_text

    seen, said = 0, ""
    while True:
        state = read_state(path)
        seen = min(seen, len(state.rows))  # a resumed run drops what it had not finished
        lines = [
            generation_line(row, state.generations) if "fitness/mean" in row else evaluation_line(row)
            for row in state.rows[seen:]
        ]
        seen = len(state.rows)
        status = state.note if state.note and not state.over else state.status
        if status != said or state.over:
            lines.append(": ".join(part for part in (state.name, status_text(state), state.note) if part))
            said = status
        if state.over:
            lines.append(health_text(state))
        for line in lines:
            print(line, flush=True)
        if state.over:
            return
        time.sleep(interval_s)
