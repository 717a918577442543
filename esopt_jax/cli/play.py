"""`esopt play`: one episode, played now or recorded, turn by turn."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from esopt_jax.cli.train import add_set_option
from esopt_jax.errors import EsoptError, did_you_mean

if TYPE_CHECKING:
    from esopt_jax.reporting.episode import Decode
    from esopt_jax.rollouts.population import Case
    from esopt_jax.types import Task, Trajectory

log = logging.getLogger(__name__)

_DESCRIPTION = """\
Play one episode with the base model of a preset or YAML file, or with the tuned weights of a run folder, and print it
turn by turn. One seed is one episode. With --file, show an episode that a run has recorded."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("play", help="watch one episode", description=_DESCRIPTION)
    parser.add_argument("source", metavar="PRESET|FILE|RUN", nargs="?", help="whose agent plays")
    parser.add_argument("--generation", type=int, metavar="G", help="of a run: its weights after G updates")
    parser.add_argument("--base", metavar="PATH", help="of a run: its base model, if that has moved")
    parser.add_argument("--task", metavar="N|ID", help="index or id of the task (default: drawn with the seed)")
    parser.add_argument("--split", choices=("eval", "train"), default="eval", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the episode (default: %(default)s)")
    add_set_option(parser)
    parser.add_argument("--file", type=Path, metavar="EPISODES.jsonl.gz", help="show a recorded episode instead")
    parser.add_argument("--index", type=int, default=0, metavar="N", help="which one of --file (default: the first)")
    parser.add_argument("--json", action="store_true", help="print the episode as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Play or read, and print. An episode lost to an infrastructure error is exit code 3."""
    if (args.source is None) == (args.file is None):
        raise EsoptError("give either whose agent plays (a preset, a YAML file or a run folder) or --file")
    if not 0 <= args.seed < 2**32:
        raise EsoptError(f"--seed is {args.seed}; it must be in 0 .. 2^32-1")
    episode, decode = _played(args) if args.file is None else _recorded(args.file, args.index)
    if args.json:
        from esopt_jax.rollouts.trajectory import to_record

        print(json.dumps(to_record(episode), default=str))
    else:
        _print(episode, decode)
    return 3 if args.file is None and episode.outcome == "error" else 0


def _played(args: argparse.Namespace) -> tuple[Trajectory, Decode]:
    from esopt_jax.rollouts.population import rollout_model
    from esopt_jax.rollouts.sampler import make_sampling
    from esopt_jax.training.compile_cache import use_compile_cache
    from esopt_jax.training.evaluate import policy_view
    from esopt_jax.training.session import open_session
    from esopt_jax.training.source import load_source

    use_compile_cache()
    source = load_source(args.source, args.overrides, generation=args.generation, base=args.base)
    log.info("%s after %d updates, seed %d", source.config.preset, source.updates, args.seed)
    with open_session(source.config, source.environment, source.model) as session:
        case = _case(tuple(source.environment.tasks(args.split)), args.task, args.split, args.seed)
        (episode,) = rollout_model(
            session.stage,
            policy_view(session, source.weights),
            [case],
            seed=args.seed,
            sampling=make_sampling(source.config.rollout),
        )
        return episode, session.stage.chat.decode


def _case(tasks: Sequence[Task], wanted: str | None, split: str, seed: int) -> Case:
    """The task of that id or, failing that, of that index."""
    from esopt_jax.training.cases import permutation

    if wanted is None:
        index = int(permutation(seed, len(tasks))[0])
        return index, tasks[index]
    ids = [task.id for task in tasks]
    index = ids.index(wanted) if wanted in ids else int(wanted) if wanted.isdecimal() else -1
    if not 0 <= index < len(tasks):
        hint = did_you_mean(wanted, ids) if len(ids) <= 10 else f"ids are such as {ids[0]!r}"
        raise EsoptError(f"there is no {split} task {wanted!r}; indices are 0 .. {len(ids) - 1}, {hint}")
    return index, tasks[index]


def _recorded(path: Path, index: int) -> tuple[Trajectory, Decode | None]:
    from esopt_jax.reporting.decoder import run_decoder
    from esopt_jax.rollouts.trajectory import read_trajectories

    number = -1
    for number, episode in enumerate(read_trajectories(path)):
        if number == index:
            return episode, run_decoder(path.resolve().parents[1])
    raise EsoptError(f"--index is {index}, but {str(path)!r} holds {number + 1} episodes, counted from 0")


def _print(episode: Trajectory, decode: Decode | None) -> None:
    from rich.console import Console

    from esopt_jax.reporting.episode import draw_episode

    # rich's own NO_COLOR keeps bold and dim, which are no plain text either
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto", highlight=False)
    console.print(draw_episode(episode, decode), soft_wrap=True)
