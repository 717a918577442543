"""`esopt train`: tune an agent and leave a run folder."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from esopt_jax.config_reader import load_config
from esopt_jax.errors import StoppedError

if TYPE_CHECKING:
    from esopt_jax.training.loop import Run

_DESCRIPTION = """\
Tune the agent of a preset or YAML file and leave a run folder: resolved config, metrics, history, trajectories,
final weights as a Hugging Face folder, summary and reward curve."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("train", help="tune an agent", description=_DESCRIPTION)
    parser.add_argument("source", metavar="PRESET|FILE", help="name of a preset (see `esopt presets`) or a YAML file")
    add_set_option(parser)
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="where to write; must be new or empty (default: runs/<preset>-<n>)"
    )


def add_set_option(parser: argparse.ArgumentParser) -> None:
    """`--set section.key=value`, any number of times."""
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        action="append",
        default=[],
        help="change a key of the config, such as es.sigma=0.01; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Train, draw the curve and print the result."""
    started = time.perf_counter()
    config = load_config(args.source, args.overrides)
    from esopt_jax.training.run_folder import check_run_dir, next_run_dir

    run_dir = args.run_dir or next_run_dir(config.preset)
    check_run_dir(run_dir)

    from esopt_jax.reporting.curve import draw_curve
    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.loop import train
    from esopt_jax.training.summary import record_wall_s

    use_compile_cache()
    try:
        result = train(config, run_dir, started=started)
    except StoppedError:
        draw_curve(run_dir)
        raise
    draw_curve(result.folder)
    record_wall_s(result.folder, time.perf_counter() - started)
    _print_result(result)
    return 0


def _print_result(run: Run) -> None:
    from rich.console import Console
    from rich.table import Table

    summary = run.summary
    table = Table(title=f"{summary['preset']}: held-out {summary['base']['metric'].replace('_', ' ')}")
    for column, justify in (("", "left"), ("mean", "right"), ("95 % interval", "right"), ("episodes", "right")):
        table.add_column(column, justify=justify)
    for name, result in _results(summary):
        low, high = result["ci95"]
        table.add_row(name, f"{result['mean']:.3f}", f"{low:.3f} .. {high:.3f}", str(result["episodes"]))
    console = Console()
    console.print(table)
    console.print(f"run folder: {run.folder}", highlight=False, soft_wrap=True)


def _results(summary: dict) -> list[tuple[str, dict]]:
    rows = []
    for stage in ("base", "final"):
        by_sampling = summary[f"{stage}_by_sampling"] or {"preset": summary[stage]}
        rows += [(f"{stage}, {sampling}", result) for sampling, result in by_sampling.items()]
    if summary["best_random"] is not None:
        rows.append(("best random perturbation", summary["best_random"]))
    return rows
