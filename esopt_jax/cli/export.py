"""`esopt export`: write the weights of a run as a Hugging Face folder."""

from __future__ import annotations

import argparse
from pathlib import Path

_DESCRIPTION = """\
Write the weights that a run had after any generation as a Hugging Face folder, which transformers and vLLM load: the
files of the base model with the tuned weights in them, in the types of the base. The weights come from the nearest
checkpoint and a replay of the rest, so every generation can be had, also of a run that still goes on."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("export", help="write a run's weights as a model folder", description=_DESCRIPTION)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--generation", type=int, metavar="G", help="updates to apply (default: all)")
    parser.add_argument("--base", metavar="PATH", help="the base model, if it has moved")


def run(args: argparse.Namespace) -> int:
    """Export and say what was written."""
    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.export import export_run

    use_compile_cache()
    done = export_run(args.run, args.out, generation=args.generation, base=args.base)
    note = "" if done.exact else "; this is another platform than the run's, so they are equal to tolerance only"
    print(f"{done.folder}: weights after {done.updates} updates, digest {done.digest}{note}")
    return 0
