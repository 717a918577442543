"""`esopt ahd search` and `esopt ahd plot`: search for a heuristic, go on with a search, draw searches."""

from __future__ import annotations

import argparse
from pathlib import Path

from esopt_jax.cli.train import add_set_option
from esopt_jax.errors import EsoptError

_DESCRIPTION = """\
Search for a heuristic with a language model and leave a folder: resolved config, every program with its score, what
the model wrote, the best program as a file, objective against calls. A search that was stopped or killed at any moment
goes on with --resume DIR, to the same result."""

_PLOT = """\
Draw the best objective so far against calls of the language model. Searches that differ in nothing but their seeds are
one line: the median, within min..max for fewer than five and 10-90 % for more. The legend names what differs."""


def add_search_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command among those of `esopt ahd`."""
    parser = commands.add_parser("search", help="search for a heuristic", description=_DESCRIPTION)
    parser.add_argument("source", metavar="FILE", nargs="?", help="a YAML file, such as those of experiments/ahd")
    add_set_option(parser)
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="where to write; must be new or empty (default: runs/<name>-<n>)"
    )
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with the search in DIR, under its own config")


def add_plot_parser(commands: argparse._SubParsersAction) -> None:
    """Register `plot` among the commands of `esopt ahd`."""
    parser = commands.add_parser("plot", help="draw searches", description=_PLOT)
    parser.add_argument("runs", metavar="DIR", type=Path, nargs="+", help="folders of searches of one task")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="picture: .png, .svg or .pdf (default: DIR/curve.png; of several searches.png, here)",
    )


def run_plot_command(args: argparse.Namespace) -> int:
    """Draw and say where."""
    from esopt_jax.reporting.figure import check_picture
    from esopt_jax.reporting.search_curve import draw_searches

    if args.out is not None:
        check_picture(args.out)
    print(draw_searches(args.runs, out=args.out))
    return 0


def run_search_command(args: argparse.Namespace) -> int:
    """Search and print the result."""
    from esopt_jax.training.signals import signals_stop

    with signals_stop():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    if (args.source is None) == (args.resume is None):
        raise EsoptError("give a YAML file to start a search, or --resume DIR to go on with one")
    if args.resume is not None and (args.run_dir is not None or args.overrides):
        raise EsoptError("--resume goes on in its own folder under its own config; leave out --run-dir and --set")

    from esopt_jax.search.config import load_ahd_config
    from esopt_jax.training.run_folder import next_run_dir

    config = None if args.source is None else load_ahd_config(args.source, args.overrides)

    from esopt_jax.search.start import resume_search, run_search
    from esopt_jax.training.compile_cache import use_compile_cache

    use_compile_cache()
    if config is None:
        folder, state = args.resume, resume_search(args.resume)
    else:
        folder = args.run_dir or next_run_dir(config.name)
        state = run_search(config, folder)
    if state.best is None:
        print(f"no valid program in {state.calls} calls; {folder / 'programs.jsonl'} says why")
    else:
        print(f"objective {state.best.objective:.5f} after {state.calls} calls: {folder / 'best.py'}")
    return 0
