"""`esopt plot`: draw one run, or compare several."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from esopt_jax.errors import EsoptError

_DESCRIPTION = """\
Draw the reward curve of a run; of several, their medians. Runs that differ in nothing but their seed are one line: the
median over seeds, within min..max for fewer than five runs and 10-90 % for more. The legend names what differs."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("plot", help="draw runs", description=_DESCRIPTION)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="a run folder, or one of --seeds")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--metric", metavar="NAME", help="any number of metrics.jsonl, such as update_norm")
    what.add_argument("--times", action="store_true", help="where the seconds of each generation went; of one run")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="picture: .png, .svg or .pdf (default: RUN/reward_curve.png, RUN/times.png; of several runs "
        "curves.png, of a metric NAME.png, here)",
    )


def run(args: argparse.Namespace) -> int:
    """Draw and say where."""
    from esopt_jax.reporting.comparison import draw_metric, draw_runs
    from esopt_jax.reporting.curve import draw_curve
    from esopt_jax.reporting.figure import check_picture
    from esopt_jax.reporting.groups import read_runs
    from esopt_jax.reporting.run_files import with_seeds
    from esopt_jax.reporting.time_curve import draw_times

    if args.out is not None:
        check_picture(args.out)
    runs = read_runs([run for path in args.runs for run in with_seeds(path)])
    if args.metric is not None:
        path = draw_metric(runs, args.metric, args.out or Path(re.sub(r"[^\w.-]+", "_", args.metric) + ".png"))
    elif args.times:
        if len(runs) > 1:
            raise EsoptError(f"--times draws one run; {len(runs)} are given")
        path = draw_times(runs[0].path, out=args.out)
    elif len(runs) > 1:
        path = draw_runs(runs, args.out or Path("curves.png"))
    else:
        path = draw_curve(runs[0].path, out=args.out)
    print(path)
    return 0
