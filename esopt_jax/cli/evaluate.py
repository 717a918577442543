"""`esopt eval`: score a model, or a run after any of its generations, on held-out tasks."""

from __future__ import annotations

import argparse
import json

from esopt_jax.cli.train import add_set_option

_DESCRIPTION = """\
Score a policy on the held-out tasks of its environment, under the config's own sampling: the base model of a preset or
YAML file, or the weights of a run, after all its updates (then exactly as `final` in its summary) or after G of them.
--set changes what is played and how, such as env.options.mask=8 or rollout.temperature=0."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("eval", help="score a model or a run on held-out tasks", description=_DESCRIPTION)
    parser.add_argument("source", metavar="PRESET|FILE|RUN", help="a preset, a YAML file, or a run folder")
    add_source_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """`--generation`, `--base` and `--set`, for commands that take what `load_source` takes."""
    parser.add_argument("--generation", type=int, metavar="G", help="of a run: updates to apply (default: all)")
    parser.add_argument("--base", metavar="PATH", help="the base model, if it has moved")
    add_set_option(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate and print."""
    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.evaluate import evaluate
    from esopt_jax.training.source import load_source

    use_compile_cache()
    source = load_source(args.source, args.overrides, generation=args.generation, base=args.base)
    record = {"updates": source.updates, "exact": source.exact, **evaluate(source).record()}
    if args.json:
        print(json.dumps(record))
    else:
        _print_table({"model": source.config.model.path, "task": source.config.env.name, **record})
    return 0


def _print_table(record: dict) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in record.items():
        table.add_row(name.replace("_", " "), _text(value))
    Console().print(table)


def _text(value: object) -> str:
    if isinstance(value, list):
        return " .. ".join(map(_text, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
