"""`esopt train`: tune an agent and leave a run folder, or go on with one."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError, StoppedError

if TYPE_CHECKING:
    from esopt_jax.training.run import Run

log = logging.getLogger(__name__)

_DESCRIPTION = """\
Tune the agent of a preset or YAML file and leave a run folder: resolved config, metrics, history, trajectories,
checkpoints, final weights as a Hugging Face folder, summary and reward curve. A run that was stopped or killed at any
moment goes on with --resume DIR, to the same result."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("train", help="tune an agent", description=_DESCRIPTION)
    parser.add_argument(
        "source", metavar="PRESET|FILE", nargs="?", help="name of a preset (see `esopt presets`) or a YAML file"
    )
    add_set_option(parser)
    parser.add_argument(
        "--run-dir",
        type=_folder,
        metavar="DIR",
        help="where to write; must be new or empty (default: runs/<preset>-<n>)",
    )
    parser.add_argument("--resume", type=_folder, metavar="DIR", help="go on with the run in DIR, under its own config")
    parser.add_argument(
        "--seeds",
        metavar="0..4",
        help="run several values of es.seed one after the other, in --run-dir/seed-N; given again, it goes on",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what the run will need, as `esopt plan` does, and stop there"
    )
    parser.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="start one of several processes that share the population; HOST is that of process 0",
    )
    parser.add_argument("--processes", type=int, metavar="N", help="with --coordinator: how many there are")
    parser.add_argument("--process", type=int, metavar="I", help="with --coordinator: which this one is, from 0")
    parser.add_argument(
        "--cluster", action="store_true", help="the same under SLURM's srun or Open MPI, which tell who the others are"
    )


def _folder(text: str) -> Path:
    """A folder by its name; an empty one, as of an unset shell variable, would mean the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty name; name a folder ('.' is the current one)")
    return Path(text)


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
    if args.dry_run:
        return _dry_run(args)
    from esopt_jax.training.signals import signals_stop

    with signals_stop(), _with_others(args):
        return _run(args)


def _dry_run(args: argparse.Namespace) -> int:
    """What `esopt plan` says of the run; nothing is trained or written."""
    if args.source is None or args.resume is not None:
        raise EsoptError("--dry-run plans a new run; give a preset or a YAML file, and no --resume")
    load_config(args.source, args.overrides)
    from esopt_jax.cli.plan import in_a_child

    return in_a_child(args.source, args.overrides)


def _with_others(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Join the other processes, if the command says that there are some."""
    named = (args.coordinator, args.processes, args.process)
    if not args.cluster and named == (None, None, None):
        return nullcontext()
    if args.seeds is not None:
        raise EsoptError("--seeds runs in one process; start the seeds one by one")
    if args.cluster and named != (None, None, None):
        raise EsoptError("--cluster finds out what --coordinator, --processes and --process say; leave these out")
    if not args.cluster:
        if None in named or not 0 <= args.process < args.processes:
            raise EsoptError("give --coordinator HOST:PORT, --processes N and --process I, with I in 0 .. N-1")
        host, _, port = args.coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise EsoptError(f"--coordinator is {args.coordinator!r}; it must be HOST:PORT, such as node17:4321")
    from esopt_jax.rollouts.processes import joined

    return joined(*named)


def _run(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    if (args.source is None) == (args.resume is None):
        raise EsoptError("give a preset or a YAML file to start a run, or --resume DIR to go on with one")
    if args.resume is not None:
        if args.run_dir is not None or args.seeds is not None:
            raise EsoptError("--resume goes on in its own folder with its own seed; leave out --run-dir and --seeds")
        return _resume(args, started)
    config = load_config(args.source, args.overrides)
    from esopt_jax.training.run_folder import check_run_dir, next_run_dir

    if args.seeds is not None:
        if args.run_dir is None:
            raise EsoptError("--seeds needs --run-dir, in which the same command, given again, finds what it has done")
        return _train_seeds(args.seeds, config, args.run_dir)
    run_dir = args.run_dir or next_run_dir(config.preset)
    if not (args.cluster or args.coordinator):  # with others it may be theirs already
        check_run_dir(run_dir)

    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.loop import train

    use_compile_cache()
    return _finish(lambda: train(config, run_dir, started=started), run_dir)


def _resume(args: argparse.Namespace, started: float) -> int:
    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.resume import resume

    use_compile_cache()
    return _finish(lambda: resume(args.resume, args.overrides, started=started), args.resume)


def _train_seeds(seeds: str, config: Any, root: Path) -> int:
    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.seeds import parse_seeds, train_seeds

    chosen = parse_seeds(seeds)
    use_compile_cache()
    found = train_seeds(config, chosen, root)
    for seed in chosen:
        _draw(root / f"seed-{seed}")
    _print_aggregate(found, root)
    return 0


def _finish(work: Callable[[], Run], run_dir: Path) -> int:
    """Run, draw the curve whatever comes of it, and print the result; of several processes only the first shows any."""
    from esopt_jax.rollouts.processes import is_owner

    if not is_owner():
        logging.getLogger("esopt_jax").setLevel(logging.WARNING)
        work()
        return 0
    try:
        result = work()
    except StoppedError:
        _draw(run_dir)
        raise
    from esopt_jax.training.summary import add_wall_s

    drawing = time.perf_counter()
    _draw(result.folder)
    try:
        add_wall_s(result.folder, time.perf_counter() - drawing)
    except (OSError, EsoptError) as fault:
        log.warning("the summary lacks the seconds of drawing: %s", fault)
    _print_result(result)
    return 0


def _draw(run_dir: Path) -> None:
    from esopt_jax.reporting.curve import draw_curve

    try:
        draw_curve(run_dir)
    except Exception as fault:  # a full disk, a folder that vanished: nothing here may hide how the run ended
        log.warning("the curve cannot be drawn: %s", fault)


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
    named = (
        ("best_random", "best random perturbation"),
        ("randopt", "best of all perturbations"),
        ("randopt_vote", "vote of the best perturbations"),
    )
    rows += [(text, summary[key]) for key, text in named if summary[key] is not None]
    return rows


def _print_aggregate(found: dict, root: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{found['preset']}: held-out solve rate over {len(found['seeds'])} seeds")
    for column, justify in (("", "left"), ("mean", "right"), ("sd", "right"), ("95 % interval", "right")):
        table.add_column(column, justify=justify)
    for name in ("base", "final", "gain", "best_random"):
        if (record := found[name]) is not None:
            low, high = record["ci95"] or (None, None)
            interval = "" if low is None else f"{low:.3f} .. {high:.3f}"
            sd = "" if record["sd"] is None else f"{record['sd']:.3f}"
            table.add_row(name.replace("_", " "), f"{record['mean']:.3f}", sd, interval)
    console = Console()
    console.print(table)
    console.print(f"run folders: {root}/seed-*", highlight=False, soft_wrap=True)
