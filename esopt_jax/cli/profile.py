"""`esopt profile`: where the time of a generation goes, and a trace of it to look into."""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

from esopt_jax.cli.train import add_set_option
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError

_DESCRIPTION = """\
Run two generations and print where the seconds of the second went: the first one compiles. With --out a profiler trace
of the second is written, which `tensorboard` (with its profile plugin) or https://ui.perfetto.dev shows: programs and
threads on one time line. Nothing else is kept."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("profile", help="where the time of a generation goes", description=_DESCRIPTION)
    parser.add_argument("source", metavar="PRESET|FILE", help="as for `esopt train`")
    add_set_option(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write a trace there; must be new or empty")


def run(args: argparse.Namespace) -> int:
    """Run, trace, print."""
    few = ["es.generations=2", "eval.episodes=1", "eval.repeats=1", "eval.every=0", "train.checkpoint_every=0"]
    quiet = ["eval.by_sampling=false", "eval.best_random=false", "log.progress=none", "log.monitor=none"]
    config = load_config(args.source, [*args.overrides, *few, *quiet])
    if args.out is not None and args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise EsoptError(f"--out {str(args.out)!r} is there already; give a folder that is new or empty")

    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.loop import train

    use_compile_cache()
    if not args.verbose:
        logging.getLogger("esopt_jax").setLevel(logging.WARNING)  # the run's own lines name a folder that does not last
    with tempfile.TemporaryDirectory(prefix="esopt-profile-") as folder, _Trace(args.out) as trace:
        rows = train(config, Path(folder) / "run", at=trace.at).metrics()
    _print(next(row for row in reversed(rows) if "time/decode_s" in row))
    if args.out is not None:
        print(f"trace: {args.out}")
    return 0


class _Trace:
    """Traces from the end of the first generation to that of the second."""

    def __init__(self, out: Path | None) -> None:
        self._out, self._passed, self._on = out, 0, False

    def __enter__(self) -> _Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def at(self, moment: Any) -> None:
        """Told by the run where it is."""
        import jax

        from esopt_jax.training.moments import Moment

        if self._out is None or moment != Moment.AFTER_APPLIED:
            return
        self._passed += 1
        if self._passed == 1:
            jax.profiler.start_trace(self._out, create_perfetto_trace=True)
            self._on = True
        else:
            self._stop()

    def _stop(self) -> None:
        import jax

        if self._on:
            self._on = False
            jax.profiler.stop_trace()


def _print(row: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from esopt_jax.reporting.time_curve import seconds_of

    whole = row["time/rollout_s"] + row["time/update_s"]
    table = Table(title="one generation")
    for column, justify in (("", "left"), ("seconds", "right"), ("share", "right")):
        table.add_column(column, justify=justify)
    for part, seconds in sorted(seconds_of(row).items(), key=lambda item: -item[1]):
        table.add_row(part, f"{seconds:.3f}", f"{100 * seconds / whole:.0f} %")
    table.add_row("together", f"{whole:.3f}", "100 %")
    console = Console()
    console.print(table)
    share = row["time/product_share"]
    bound = "" if share is None else f", of whose time the products alone take {100 * share:.0f} %"
    console.print(
        f"{row['tokens']} tokens written, {row['tokens_read']} read; {row['tokens_per_s']:.0f} written a second; rows "
        f"idle for {100 * row['time/idle_share']:.0f} % of decoding{bound}",
        highlight=False,
        soft_wrap=True,
    )
