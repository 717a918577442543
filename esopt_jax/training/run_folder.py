"""The folder of a run: its layout, the refusals before anything heavy, and what is written first.

What it holds:

    config.yaml               resolved config            metrics.jsonl             one row a generation, `metrics`
    env.json                  versions and devices       evaluations.jsonl         held-out scores, task by task
    history.jsonl             what a replay needs        trajectories/*.jsonl.gz   episodes worth reading
    checkpoints/              weights to go on from      final/                    weights as a Hugging Face folder
    summary.json              results, `summary`         reward_curve.png          drawn by the command line
    lock                      held while a process writes here
    pending.json              what the history does not say of the generation being applied
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from esopt_jax.errors import EsoptError
from esopt_jax.training.jsonl import write_text
from esopt_jax.training.lock import run_lock

_LEFTOVERS = ("lock", "config.yaml.partial")


@dataclass(frozen=True)
class Folder:
    """Names of what every folder has that a command leaves behind; creates nothing by itself."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved config, from which the same can be run again."""
        return self.path / "config.yaml"

    @property
    def env(self) -> Path:
        """Versions, devices, flags, precision and commit."""
        return self.path / "env.json"

    @property
    def summary(self) -> Path:
        """Results."""
        return self.path / "summary.json"

    @property
    def final(self) -> Path:
        """The tuned weights as a Hugging Face folder."""
        return self.path / "final"

    @property
    def lock(self) -> Path:
        """Held by the process that writes here."""
        return self.path / "lock"


class RunFolder(Folder):
    """The folder of a run."""

    def env_after(self, updates: int) -> Path:
        """The same of a process that went on elsewhere, after so many updates."""
        return self.path / f"env_after_{updates:05d}.json"

    @property
    def history(self) -> Path:
        """Seeds, fitness and coefficients: all that a replay needs."""
        return self.path / "history.jsonl"

    @property
    def metrics(self) -> Path:
        """One row a generation and one an evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """Every held-out score, task by task."""
        return self.path / "evaluations.jsonl"

    @property
    def pending(self) -> Path:
        """Metrics of the generation that is being applied, as far as a replay cannot tell them again."""
        return self.path / "pending.json"

    @property
    def checkpoints(self) -> Path:
        """Weights that a resumed run need not replay."""
        return self.path / "checkpoints"

    def trajectories(self, generation: int) -> Path:
        """Episodes of members of one generation."""
        return self.path / "trajectories" / f"gen_{generation:05d}.jsonl.gz"

    def held_out(self, updates: int) -> Path:
        """Episodes of the evaluation of the weights after so many updates."""
        return self.path / "trajectories" / f"eval_{updates:05d}.jsonl.gz"


def next_run_dir(preset: str, root: Path = Path("runs")) -> Path:
    """`root/<preset>-<n>` with the first `n` after all that exist."""
    stem = re.sub(r"[^\w.-]+", "-", preset)
    taken = [re.fullmatch(re.escape(stem) + r"-(\d+)", p.name) for p in root.glob(f"{stem}-*")] if root.is_dir() else []
    return root / f"{stem}-{1 + max((int(match[1]) for match in taken if match), default=0)}"


def check_run_dir(path: Path) -> None:
    """Refuse a folder that a run may not use; look only, create nothing.

    A lock that a process left behind which died before it wrote anything else is no obstacle.

    Raises:
        EsoptError: `path` is no folder (a file, a dangling link), lies below such, is not empty or cannot be written.
    """
    nearest = path.absolute()
    try:
        while not os.path.lexists(nearest):
            nearest = nearest.parent
        if not nearest.is_dir():
            where = (
                "is not a folder"
                if nearest == path.absolute()
                else f"lies below {str(nearest)!r}, which is not a folder"
            )
            raise EsoptError(f"run folder {str(path)!r} {where}; give another --run-dir")
        if nearest == path.absolute() and {p.name for p in path.iterdir()} - set(_LEFTOVERS):
            raise EsoptError(f"run folder {str(path)!r} is not empty; give a new --run-dir or remove it")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise EsoptError(f"run folder {str(path)!r} cannot be written: no permission in {str(nearest)!r}")
    except OSError as fault:
        raise EsoptError(f"run folder {str(path)!r} cannot be used: {fault.strerror}; give another --run-dir") from None


def open_run_folder(path: Path) -> RunFolder:
    """The folder of an existing run.

    Raises:
        EsoptError: there is none.
    """
    folder = RunFolder(path)
    try:
        names = os.listdir(path)
    except OSError as fault:
        state = {errno.ENOENT: "does not exist", errno.ENOTDIR: "is not a folder"}.get(fault.errno or 0)
        raise EsoptError(f"run folder {str(path)!r} {state or f'cannot be read: {fault.strerror}'}") from None
    if folder.config.name not in names:
        raise EsoptError(f"{str(path)!r} is no run folder: it holds no {folder.config.name}")
    return folder


@contextmanager
def create_run_folder(path: Path, config_yaml: str) -> Iterator[tuple[RunFolder, Callable[[], None]]]:
    """Create the folder with the resolved config in it; its lock is held within the block.

    Yields the folder, and the function that `run_lock` yields.

    Raises:
        EsoptError: as `check_run_dir`; also when another process took the folder in between.
    """
    folder = RunFolder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise EsoptError(f"run folder {str(path)!r} cannot be written: {fault.strerror}") from None
    with run_lock(folder.lock) as check_held:
        check_run_dir(path)  # again, now that nobody else can take it
        write_text(folder.config, config_yaml)
        yield folder, check_held
