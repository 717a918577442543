"""`esopt eval`: score a model on held-out tasks, without training."""

from __future__ import annotations

import argparse
import json

from esopt_jax.cli.train import add_set_option
from esopt_jax.config_reader import load_config

_DESCRIPTION = """\
Score the model of a config on the held-out tasks of its environment, under the config's own sampling. For tuned
weights give their folder: --set model.path=RUN/final."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("eval", help="score a model on held-out tasks", description=_DESCRIPTION)
    parser.add_argument("source", metavar="PRESET|FILE", help="a preset, or a YAML file such as RUN/config.yaml")
    add_set_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Evaluate and print."""
    config = load_config(args.source, args.overrides)

    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.evaluate import evaluate

    use_compile_cache()
    record = evaluate(config).record()
    if args.json:
        print(json.dumps(record))
    else:
        _print_table({"model": config.model.path, "task": config.env.name, **record})
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
