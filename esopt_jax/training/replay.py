"""`esopt replay`: rebuild weights from base and history alone, and say whether they are those that the run had.

Under the fingerprint of the run a replay is bitwise, or something was changed. Under another one normals and products
differ in their last bits: the replay is then equal to tolerance, and compared with the weights themselves where the run
still has them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp

from esopt_jax.config_reader import load_config
from esopt_jax.core.digest import digest
from esopt_jax.core.fingerprint import fingerprint
from esopt_jax.core.master import master_value
from esopt_jax.core.scope import adapter_scope
from esopt_jax.errors import EsoptError
from esopt_jax.models.sharding import mesh_here
from esopt_jax.training.checkpoints import restore_checkpoint, saved_checkpoints, shapes_of
from esopt_jax.training.history_reader import History, check_config, read_history
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.restore import base_master, base_model, restore
from esopt_jax.training.run_folder import RunFolder, open_run_folder
from esopt_jax.types import Master, Params

log = logging.getLogger(__name__)

TOLERANCE = 1e-4
"""Largest difference, as a share of the largest weight, that two platforms may leave between replays."""


@dataclass(frozen=True)
class Replay:
    """Weights rebuilt from a history, and how they compare with those of the run.

    Attributes:
        updates: generations applied.
        digest: of the rebuilt weights.
        expected: digest that the history holds for them; None of a generation that was never confirmed.
        verdict: "equal" (bit for bit), "equal to tolerance" (another platform or mesh; compared with the run's
            weights), "another platform" (the same, but there are no weights to compare with) or "unconfirmed".
        largest_difference: between rebuilt and recorded weights; None where there was nothing to compare.
        compared_with: what was compared with, or None.
        master: the rebuilt weights in the run's format.
    """

    updates: int
    digest: str
    expected: str | None
    verdict: str
    largest_difference: float | None
    compared_with: str | None
    master: Master

    @property
    def params(self) -> Params:
        """The rebuilt weights, float32 by leaf path."""
        return {path: master_value(leaf) for path, leaf in self.master.items()}


def known_history(path: Path) -> History:
    """The history in a file that must hold at least its header.

    Raises:
        EsoptError: it is absent, empty or damaged.
    """
    history = read_history(path)
    if history is None:
        raise EsoptError(f"{path} holds no complete header; it is no history")
    if history.partial:
        log.warning("%s: the last line was cut short and is left out", path)
    return history


def replay_run(run_dir: Path, *, generation: int | None = None, base: str | Path | None = None) -> Replay:
    """Replay the run in a folder; its checkpoints and final weights are only compared with.

    Args:
        run_dir: the folder.
        generation: updates to apply; by default all.
        base: where the base model is, if it has moved.

    Raises:
        EsoptError: as `replay_file`.
    """
    folder = open_run_folder(run_dir)
    config, history = load_config(folder.config), known_history(folder.history)
    check_config(history, config, folder.config)
    use_numerics(config)
    base = config.model.path if base is None else base
    return _replay(history, base, generation, folder)


def replay_file(history: Path, *, base: str | Path, generation: int | None = None) -> Replay:
    """Replay a history that has nothing else beside it.

    Raises:
        EsoptError: the base or the history is not what it was, or there is no such generation.
    """
    return _replay(known_history(history), base, generation, None)


def _replay(history: History, base: str | Path, generation: int | None, folder: RunFolder | None) -> Replay:
    mesh = mesh_here(history.header.mesh)
    model = base_model(base, history.header.es, mesh)
    updates = len(history.records) if generation is None else generation
    restored = restore(history, model, updates=updates, fingerprint=fingerprint(), mesh=mesh)
    marks = (history.header.base_digest, *history.digests)
    expected = marks[updates] if updates < len(marks) else None
    difference, where = None, None
    if expected is None:
        verdict = "unconfirmed"
    elif restored.digest == expected:
        verdict = "equal"
    else:
        verdict = "another platform"
        kept = None if folder is None else _recorded(folder, history, restored.master, updates, mesh)
        if kept is not None:
            where, weights = kept
            difference, verdict = _compare(restored.master, weights), "equal to tolerance"
    return Replay(updates, restored.digest, expected, verdict, difference, where, restored.master)


def _recorded(
    folder: RunFolder, history: History, like: Master, updates: int, mesh: tuple[int, int]
) -> tuple[str, Master] | None:
    """The weights that the run itself left after so many updates, if they are still there with their digest."""
    expected = history.digests[updates - 1]
    if updates in saved_checkpoints(folder.checkpoints):
        try:
            master = restore_checkpoint(folder.checkpoints, updates, expected, like=shapes_of(like))
            return f"checkpoint of {updates} updates", master
        except EsoptError:
            pass  # damaged; perhaps the final weights are there
    merged = adapter_scope(history.header.es.scope) is not None  # `final` no longer has what was tuned
    if folder.final.exists() and not merged:
        final = base_master(base_model(folder.final, history.header.es, mesh), history.header.es)
        if digest(final) == expected:  # not those of a longer run, nor rounded to the base's type
            return "final weights", final
    return None


def _compare(rebuilt: Master, recorded: Master) -> float:
    """Largest difference between two sets of weights.

    Raises:
        EsoptError: it is too large for two platforms.
    """
    pairs = [(master_value(rebuilt[path]), master_value(recorded[path])) for path in rebuilt]
    difference = max(float(jnp.max(jnp.abs(ours - theirs))) for ours, theirs in pairs)
    largest = max(float(jnp.max(jnp.abs(theirs))) for _, theirs in pairs)
    if not difference <= TOLERANCE * largest:
        raise EsoptError(
            f"the rebuilt weights differ from the recorded ones by up to {difference:.3g}, more than another platform "
            f"explains (the largest weight is {largest:.3g}): the history or those weights were changed"
        )
    return difference
