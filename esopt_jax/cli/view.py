"""`esopt view`: a run as one HTML file to click through."""

from __future__ import annotations

import argparse
from pathlib import Path

_DESCRIPTION = """\
Write a run as one HTML file that works without a network: its results and curves, and every recorded episode turn by
turn, the best member beside the worst, and held-out episodes before training beside those after it. log.trajectories
decides which members' episodes a run records. A run that goes on can be viewed too; call it again for what is new."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("view", help="write a run as a web page", description=_DESCRIPTION)
    parser.add_argument("run", metavar="RUN", type=Path, help="its folder")
    parser.add_argument("--out", type=Path, metavar="FILE.html", help="the page (default: RUN/view.html)")
    parser.add_argument("--open", action="store_true", help="open it in the browser of this machine")


def run(args: argparse.Namespace) -> int:
    """Write the page and say where."""
    from esopt_jax.reporting.page import check_page, write_page

    if args.out is not None:
        check_page(args.out)
    path = write_page(args.run, out=args.out)
    print(path)
    if args.open:
        import webbrowser

        webbrowser.open(path.absolute().as_uri())
    return 0
