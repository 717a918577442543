"""What is due between two generations: a checkpoint, evaluations of the weights so far, and their drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from esopt_jax.rollouts.processes import is_owner
from esopt_jax.training.checkpoints import save_checkpoint, saved_checkpoints
from esopt_jax.training.drift import report_drift
from esopt_jax.training.held_out import score_weights
from esopt_jax.training.ledger import Ledger
from esopt_jax.training.session import Session
from esopt_jax.types import Master


def settle(
    session: Session, master: Master, ledger: Ledger, updates: int, *, kept: Mapping[str, Any] | None = None
) -> None:
    """What is due after so many updates and not there yet.

    Args:
        session: of the run.
        master: the weights.
        ledger: of the run.
        updates: that lie behind the weights.
        kept: what a checkpoint holds, where that is more than the weights.
    """
    train, total, root = session.config.train, session.config.es.generations, ledger.folder.checkpoints
    due = _due(train.checkpoint_every, updates, total) and updates and updates not in saved_checkpoints(root)
    if due and is_owner():
        held = master if kept is None else dict(kept)
        save_checkpoint(root, held, updates=updates, keep=train.keep_checkpoints, at=ledger.at)
    if updates in (0, total) or (session.config.eval.every and updates % session.config.eval.every == 0):
        score_weights(session, master, ledger, updates)
        ledger.write_summary("running")
    every = session.config.log.drift_every
    if every and (updates % every == 0 or updates == total):
        report_drift(session, master, ledger, updates)


def _due(every: int, updates: int, total: int) -> bool:
    return bool(every) and (updates % every == 0 or updates == total)
