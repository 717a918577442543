"""What the tiny base can do, and what it does: solve rates on held-out 4x4 puzzles through the package's own rollouts.

    python experiments/base_model/measure.py DIR        # or builtin:sudoku-4x4; about 2 minutes on one core

Left alone, the base mostly guesses and solves almost nothing. Made to begin every reply with `look`, it plays well.
That gap, also under weight noise, is what evolution strategies have to close. Prints two tables in Markdown.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from esopt_jax.config_reader import from_dict
from esopt_jax.core.master import make_master
from esopt_jax.models.load import resolve_folder
from esopt_jax.rollouts.population import rollout_population
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.evaluate import evaluate_view, policy_view, samplings
from esopt_jax.training.session import Session, load_parts, open_session
from esopt_jax.types import Trajectory

MASKS, EPISODES = (4, 5, 6), 512
SIGMAS, MEMBERS, MEMBER_CASES = (0.01, 0.02, 0.03, 0.05), 16, 64


def table(folder: Path, *, episodes: int = EPISODES) -> Iterator[str]:
    """Measure the model in `folder`; yields the lines of a Markdown table as they are known."""
    yield "| mask | forced `look`, T 1 | T 1 | `look` at T 1 | T 0.7, top-p 0.8 | greedy |"
    yield "|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as copy:
        looking = force_look(folder, Path(copy) / "model")
        for mask in MASKS:
            yield _solve_rates(folder, looking, mask, episodes)
        yield ""
        yield f"| sigma | forced `look`, mask 6: mean over {MEMBERS} members | worst member | spread of `look` at T 1 |"
        yield "|---|---|---|---|"
        with _session(looking, 6, MEMBER_CASES) as careful, _session(folder, 6, MEMBER_CASES) as free:
            for sigma in SIGMAS:
                solved = [_solve_rate(episodes) for episodes in _members(careful, sigma)]
                looks = [_look_share(episodes) for episodes in _members(free, sigma)]
                yield f"| {sigma} | {np.mean(solved):.3f} | {np.min(solved):.3f} | {np.std(looks):.3f} |"


def force_look(folder: Path, copy: Path) -> Path:
    """A copy of the model whose chat template has written the first word of every reply already."""
    shutil.copytree(folder, copy)
    template = copy / "chat_template.jinja"
    template.write_text(template.read_text().replace("'<think>'", "'<think>look'"))
    return copy


@contextmanager
def _session(folder: Path, mask: int, episodes: int) -> Iterator[Session]:
    config = from_dict(
        {
            "model": {"path": str(folder), "dtype": "float32"},
            "es": {"population_size": MEMBERS},
            "rollout": {"max_new_tokens": 8, "max_prompt_tokens": 32, "thinking": True},
            "env": {"name": "sudoku", "prompt": "compact", "options": {"size": 4, "mask": mask}},
            "eval": {"episodes": episodes, "repeats": 1, "by_sampling": True},
        }
    )
    with open_session(config, *load_parts(config)) as session:
        yield session


def _solve_rates(folder: Path, looking: Path, mask: int, episodes: int) -> str:
    with _session(looking, mask, episodes) as session:
        forced, _ = evaluate_view(session, policy_view(session, session.model.params), "preset")
    with _session(folder, mask, episodes) as session:
        view = policy_view(session, session.model.params)
        rates, played = [], []
        for name in samplings(session.config.rollout):
            evaluation, trajectories = evaluate_view(session, view, name)
            rates.append(evaluation.mean)
            played.append(trajectories)
    plain, cool, greedy = rates
    return f"| {mask} | {forced.mean:.3f} | {plain:.3f} | {_look_share(played[0]):.3f} | {cool:.3f} | {greedy:.3f} |"


def _members(session: Session, sigma: float) -> list[list[Trajectory]]:
    """The episodes of each of `MEMBERS` perturbed models."""
    return rollout_population(
        session.stage,
        make_master(session.model.params, specs=session.model.specs, format="float32"),
        session.held_out,
        seed=0,
        generation=0,
        sigma=sigma,
        members=range(MEMBERS),
        sampling=make_sampling(session.config.rollout),
    )


def _solve_rate(episodes: Sequence[Trajectory]) -> float:
    return float(np.mean([episode.outcome == "success" for episode in episodes]))


def _look_share(episodes: Sequence[Trajectory]) -> float:
    return float(np.mean([turn.text.startswith("look") for episode in episodes for turn in episode.turns]))


def main() -> None:
    """Print the tables of one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="model folder or builtin:NAME")
    for line in table(resolve_folder(parser.parse_args().folder)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
