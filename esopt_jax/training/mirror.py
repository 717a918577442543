"""Where each of several processes keeps the records of a run.

They all go through the same steps and write the same records. The first one owns the run folder; the others keep theirs
in a folder that vanishes with them, without weights.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esopt_jax.config import Config
from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.processes import gathered, is_owner
from esopt_jax.training.run_folder import RunFolder, open_run_folder


@contextmanager
def own_folder(run_dir: Path) -> Iterator[Path]:
    """The folder of a new run for this process: `run_dir`, or one of its own."""
    if is_owner():
        yield run_dir
        return
    with tempfile.TemporaryDirectory(prefix="esopt-") as place:
        yield Path(place) / "run"


@contextmanager
def own_copy(run_dir: Path) -> Iterator[RunFolder]:
    """The folder of an existing run for this process: that itself, or a copy of its records.

    Raises:
        EsoptError: there is no such run, or this process does not see it.
    """
    try:
        folder = open_run_folder(run_dir)
    except EsoptError as fault:
        raise fault if is_owner() else EsoptError(f"{fault}; all processes must see the same folder") from None
    if is_owner():
        gathered(b"")  # nothing changes before all have read it
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="esopt-") as place:
        own = RunFolder(Path(place) / "run")
        own.path.mkdir()
        for path in _records(folder):
            if path.is_file():
                shutil.copy(path, own.path)
        gathered(b"")
        yield own


def quiet(config: Config) -> Config:
    """The config of this process: all but the first show nothing and write no episodes."""
    if is_owner():
        return config
    log = dataclasses.replace(config.log, progress="none", monitor="none", trajectories="none")
    return dataclasses.replace(config, log=log)


def _records(run: RunFolder) -> tuple[Path, ...]:
    return (run.config, run.env, run.history, run.metrics, run.evaluations, run.summary, run.pending)
