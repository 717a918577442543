"""`esopt replay`: rebuild a run's weights from its base model and its history alone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from esopt_jax.errors import EsoptError

if TYPE_CHECKING:
    from esopt_jax.training.replay import Replay

_DESCRIPTION = """\
Rebuild the weights of a run from its base model and history.jsonl alone, and print their digest. Under the platform of
the run the digest must be equal; under another one the largest difference is reported where the run still has the
weights. A history can be shared: FILE.jsonl with --base needs nothing else of the run."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("replay", help="rebuild weights from a history", description=_DESCRIPTION)
    parser.add_argument("source", type=Path, metavar="RUN|FILE", help="a run folder, or a history.jsonl")
    parser.add_argument("--generation", type=int, metavar="G", help="updates to apply (default: all)")
    parser.add_argument("--base", metavar="PATH", help="the base model; of a run folder, only if it has moved")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Replay and print."""
    if not args.source.is_dir() and args.base is None:
        raise EsoptError(f"{str(args.source)!r} is no run folder; a history alone needs --base MODEL")

    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.replay import replay_file, replay_run

    use_compile_cache()
    replayed = replay_run if args.source.is_dir() else replay_file
    found = replayed(args.source, generation=args.generation, base=args.base)
    if args.json:
        print(json.dumps({name: getattr(found, name) for name in _KEYS}))
    else:
        print(f"{found.updates} updates replayed, digest {found.digest}: {_verdict(found)}")
    return 0


_KEYS = ("updates", "digest", "expected", "verdict", "largest_difference", "compared_with")


def _verdict(found: Replay) -> str:
    match found.verdict:
        case "equal":
            return "equal to the run's, bit for bit"
        case "equal to tolerance":
            largest = f"the largest difference to the {found.compared_with} is {found.largest_difference:.3g}"
            return f"equal to tolerance; this is another platform or mesh, {largest}"
        case "another platform":
            here = "this is another platform or mesh, and there are no weights to compare with"
            return f"the run's is {found.expected}; {here}"
        case _:
            return "the history does not confirm this generation"
