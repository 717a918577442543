"""`esopt ahd`: programs that solve a task well, scored and searched for."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path

from esopt_jax.cli.ahd_search import add_plot_parser, add_search_parser, run_plot_command, run_search_command
from esopt_jax.errors import EsoptError

_SCORE = """\
Run a program on the instances of a task, in a sandbox, and print one JSON object: objective (the mean over the
instances; null for an invalid program), valid, reason (why not), instances, seconds. The same program gets the same
objective every time."""

_PUBLISHED = """\
score as the published experiments do: their instances only, per-instance seeds, precision, floors, and what they accept
that is refused otherwise; with --split test as their final evaluators do"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "ahd",
        help="search for programs that solve a task; score one; list the tasks",
        description="Automatic heuristic design; see `esopt ahd tasks`, and the -h of `score` and `search`.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    tasks = actions.add_parser(
        "tasks",
        help="list the tasks",
        description="List the tasks: what a program must define. The first size of a split is its default.",
    )
    tasks.add_argument("--json", action="store_true", help="print one JSON object")
    score = actions.add_parser("score", help="what is a program worth?", description=_SCORE)
    score.add_argument("task", metavar="TASK", help="one of `esopt ahd tasks`")
    score.add_argument("program", type=Path, metavar="PROGRAM.py", help="file that defines the function of the task")
    score.add_argument("--split", choices=("train", "val", "test"), default="train", help="default: %(default)s")
    where = score.add_mutually_exclusive_group()
    where.add_argument("--size", type=int, metavar="N", help="of an instance (default: as published)")
    where.add_argument("--data", type=Path, metavar="ARRAY", help=".npy or .npz file of instances to use instead")
    score.add_argument("--published", action="store_true", help=_PUBLISHED)
    score.add_argument(
        "--cpu-s", type=float, default=30.0, metavar="S", help="CPU seconds of a run (default: %(default)g)"
    )
    score.add_argument("--unsafe", action="store_true", help="run the program without the sandbox")
    add_search_parser(actions)
    add_plot_parser(actions)


def run(args: argparse.Namespace) -> int:
    """What the action says."""
    actions = {"tasks": _list, "score": _score, "search": run_search_command, "plot": run_plot_command}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from esopt_jax.search.tasks.registry import TASKS

    if args.json:
        fields = ("signature", "description", "direction", "sizes")
        print(json.dumps({name: {field: getattr(task, field) for field in fields} for name, task in TASKS.items()}))
        return 0
    for task in TASKS.values():
        sizes = "; ".join(f"{split} {', '.join(map(str, task.sizes[split]))}" for split in task.sizes)
        print(f"{task.name}: {'smaller' if task.direction == 'min' else 'larger'} is better; sizes: {sizes}")
        print(f"  {task.signature}")
        print(textwrap.fill(task.description, 110, initial_indent=" " * 6, subsequent_indent=" " * 6), end="\n\n")
    return 0


def _score(args: argparse.Namespace) -> int:
    if not 0 < args.cpu_s < 1e6:
        raise EsoptError(f"--cpu-s is {args.cpu_s:g}; it must be above 0 and below 1e6 seconds")

    from esopt_jax.search.tasks.evaluate import evaluate
    from esopt_jax.search.tasks.instances import read_array
    from esopt_jax.search.tasks.published import as_published
    from esopt_jax.search.tasks.registry import find_task

    task = find_task(args.task)
    if args.published:
        task = as_published(task, args.split)
    code = _read_program(args.program)
    inputs = task.instances(args.split, args.size) if args.data is None else task.inputs(read_array(args.data))
    with _sandbox(args) as sandbox:
        evaluation = evaluate(task, code, inputs, sandbox)
    print(json.dumps({"task": task.name, "direction": task.direction, **vars(evaluation)}))
    return 0


def _read_program(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise EsoptError(f"program {str(path)!r} cannot be read: {fault}; give a file of Python source") from None


def _sandbox(args: argparse.Namespace):
    from esopt_jax.tools.sandbox import Limits, Sandbox

    return Sandbox(limits=Limits(cpu_s=args.cpu_s), unsafe=args.unsafe)
