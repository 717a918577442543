"""`esopt import-history`: what the history of a published PyTorch run says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

_DESCRIPTION = """\
Read the history.json that the published PyTorch code writes, and print what it records: generations, seeds, sigma,
alpha, rewards, and what does not fit together. Its noise came from CUDA kernels of PyTorch and cannot be drawn again
here, so it is a record and no weights can be rebuilt from it."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "import-history", help="read the history.json of a published PyTorch run", description=_DESCRIPTION
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a history.json")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Read and print."""
    from esopt_jax.training.published_history import as_dict, describe, read_published

    history = read_published(args.file)
    print(json.dumps(as_dict(history)) if args.json else "\n".join(describe(history)))
    return 0
