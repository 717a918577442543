"""`esopt data`: write the data sets that the environments play, as JSON lines."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from esopt_jax.errors import EsoptError

_GENERATED_ONLY = ("size", "mask", "count", "seed")


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "data",
        help="write the data sets of the environments",
        description="Write the data set of a task as JSON lines.",
    )
    sets = parser.add_subparsers(dest="dataset", metavar="DATASET", required=True)
    sudoku = sets.add_parser(
        "sudoku",
        help="Sudoku puzzles",
        description="Write train.jsonl and eval.jsonl: puzzles with one solution each, and no solution grid in both.",
    )
    sudoku.add_argument(
        "--out", type=Path, default=Path("data/sudoku"), metavar="DIR", help="folder (default: %(default)s)"
    )
    sudoku.add_argument("--published", action="store_true", help="the published 9x9 puzzles, 128 + 128, byte for byte")
    sudoku.add_argument("--size", type=int, choices=(4, 9), help="4 or 9 (default: 4)")
    sudoku.add_argument("--mask", type=_masks, metavar="N[,N...]", help="blanks, cycled through (default: 6)")
    sudoku.add_argument("--split", choices=("train", "eval"), help="write this split only")
    sudoku.add_argument("--count", type=int, metavar="N", help="puzzles per split (default: 4096 train, 1024 eval)")
    sudoku.add_argument("--seed", type=int, metavar="N", help="of the generator (default: 0)")
    sudoku.add_argument("--force", action="store_true", help="replace files that differ")


def run(args: argparse.Namespace) -> int:
    """Write the files, or none of them when one is in the way."""
    folder: Path = args.out
    files = {folder / f"{split}.jsonl": text for split, text in _sudoku_files(args).items()}
    try:
        differing = [str(path) for path in files if path.exists() and path.read_bytes() != files[path]]
        if differing and not args.force:
            raise EsoptError(f"{', '.join(differing)} would change; choose another --out, or pass --force to replace")
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)
            puzzles, digest = len(content.splitlines()), hashlib.sha256(content).hexdigest()
            print(f"{path}: {puzzles} puzzles, {len(content)} bytes, sha256 {digest}")
    except OSError as fault:
        raise EsoptError(f"cannot write to {str(folder)!r}: {fault.strerror or fault}") from None
    return 0


def _sudoku_files(args: argparse.Namespace) -> dict[str, bytes]:
    """Split -> contents of its file."""
    from esopt_jax.envs.sudoku import Sudoku
    from esopt_jax.envs.sudoku_published import MASKS
    from esopt_jax.envs.sudoku_puzzles import puzzle_line

    chosen = {name: getattr(args, name) for name in _GENERATED_ONLY if getattr(args, name) is not None}
    if args.published:
        if chosen:
            raise EsoptError(f"--published is one fixed data set; drop --{', --'.join(chosen)}")
        environment = Sudoku(source="published", size=9, mask=MASKS)
    else:
        count = chosen.pop("count", None)
        if count is not None:
            if count < 1:
                raise EsoptError(f"--count is {count}; it must be at least 1")
            chosen |= {"train_tasks": count, "eval_tasks": count}
        environment = Sudoku(**chosen)
    files = {}
    for split in (args.split,) if args.split else ("train", "eval"):
        puzzles = enumerate(task.data for task in environment.tasks(split))
        files[split] = "".join(puzzle_line(puzzle, index=i, split=split) for i, puzzle in puzzles).encode()
    return files


def _masks(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number or a list such as 5,10,15") from None
