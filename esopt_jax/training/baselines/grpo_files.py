"""What a run of GRPO left: its history, read and checked, and the state of any of its checkpoints."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esopt_jax.config import Config, config_hash
from esopt_jax.core.digest import digest
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model
from esopt_jax.training.baselines.grpo import state_of, student_of
from esopt_jax.training.baselines.grpo_learner import Learner, make_learner
from esopt_jax.training.baselines.grpo_step import Student
from esopt_jax.training.checkpoints import restore_checkpoint, saved_checkpoints, shapes_of
from esopt_jax.training.jsonl import read_lines
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.restore import Restored, base_master, base_model
from esopt_jax.training.run_folder import RunFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Steps:
    """The history of a run as far as it is complete.

    Attributes:
        header: row 0.
        rows: of steps that were applied, each with its "applied" row.
    """

    header: Mapping[str, Any]
    rows: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]


def read_steps(path: Path) -> Steps | None:
    """The history in a file; None when not even its header is complete.

    Raises:
        EsoptError: a complete line is not what belongs there; the message names the line.
    """
    lines = read_lines(path).rows if path.exists() else []
    if not lines:
        return None
    header, rest = lines[0], lines[1:]
    if header.get("kind") != "header" or header.get("method") != "grpo":
        raise EsoptError(f"{path}, line 1 is not the header of a run of method 'grpo'")
    for number, row in enumerate(rest):
        wanted = ("applied" if number % 2 else "step", number // 2)
        if (row.get("kind"), row.get("generation")) != wanted:
            raise EsoptError(f"{path}, line {number + 2} is not the row {wanted[0]!r} of step {wanted[1]}")
    return Steps(header, tuple(zip(rest[::2], rest[1::2], strict=False)))


def check_header(steps: Steps, config: Config, path: Path) -> None:
    """Refuse a config that is not the one of the run.

    Raises:
        EsoptError: they do not belong together.
    """
    if config_hash(config) != steps.header.get("config_hash"):
        raise EsoptError(f"{path} and the history beside it do not belong together: one was changed; put it back")


def restore_run(
    folder: RunFolder, config: Config, *, updates: int | None, base: str | Path | None
) -> tuple[Restored, Model]:
    """The weights after so many steps, by default those of the newest checkpoint, and the base without its weights.

    Raises:
        EsoptError: no checkpoint holds them, or base or history is not what it was.
    """
    use_numerics(config)
    model = base_model(config.model.path if base is None else base, config.es)
    learner, steps = make_learner(config, model), read_steps(folder.history)
    if steps is None:
        raise EsoptError(f"{folder.history} holds no complete header; it is no history")
    check_header(steps, config, folder.config)
    if updates is None:
        student, updates = newest_state(folder, steps, model, config, learner)
    else:
        student = state_after(folder, steps, model, config, learner, updates)
    mark = digest(student.weights)
    restored = Restored(student.weights, mark, updates, updates, None, exact=True, seconds=0.0, unusable=())
    return restored, dataclasses.replace(model, params={})


def newest_state(
    folder: RunFolder, steps: Steps, model: Model, config: Config, learner: Learner
) -> tuple[Student, int]:
    """The newest sound checkpoint, and how many steps lie behind it; the base and 0 where there is none."""
    for updates in saved_checkpoints(folder.checkpoints):
        if 0 < updates <= len(steps.rows):
            try:
                return state_after(folder, steps, model, config, learner, updates), updates
            except EsoptError as fault:
                log.warning("%s; falling back to what is older", fault)
    return _start(steps, model, config, learner), 0


def state_after(
    folder: RunFolder, steps: Steps, model: Model, config: Config, learner: Learner, updates: int
) -> Student:
    """The state after exactly so many steps.

    Raises:
        EsoptError: no sound checkpoint holds it.
    """
    start = _start(steps, model, config, learner)
    if updates == 0:
        return start
    found = [0, *sorted(saved_checkpoints(folder.checkpoints))]
    if updates not in found or updates > len(steps.rows):
        there = ", ".join(map(str, found))
        raise EsoptError(
            f"generation {updates}: steps of method 'grpo' cannot be replayed, and the run in {str(folder.path)!r} "
            f"has weights after {there}"
        )
    shapes = shapes_of(state_of(start))
    del start
    state = restore_checkpoint(folder.checkpoints, updates, str(steps.rows[updates - 1][1]["state"]), like=shapes)
    return student_of(state, learner)


def _start(steps: Steps, model: Model, config: Config, learner: Learner) -> Student:
    weights = base_master(model, config.es)
    if (mark := digest(weights)) != steps.header["base_digest"]:
        raise EsoptError(
            f"the model in {str(model.folder)!r} is not the one that the run began with: its digest is {mark}, that of "
            f"the run's base {steps.header['base_digest']}; give the right one (--base, or --set model.path to resume)"
        )
    return Student(weights, learner.init(weights))
