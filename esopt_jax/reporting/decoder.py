"""The tokenizer of a run, for the prompts that its records hold as token ids."""

from __future__ import annotations

import logging
from pathlib import Path

from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.reporting.episode import Decode

log = logging.getLogger(__name__)


def run_decoder(run_dir: Path) -> Decode | None:
    """Token ids to text, special tokens included; None, which is logged, where the tokenizer is gone.

    It is read from the tuned weights of the run, else from its base model.
    """
    from esopt_jax.models.load import resolve_folder
    from esopt_jax.rollouts.chat import load_chat

    reason = f"{str(run_dir)!r} is no run folder"
    for folder in (run_dir / "final", None):
        try:
            folder = folder or resolve_folder(load_config(run_dir / "config.yaml").model.path)
            return load_chat(folder, thinking=False).decode
        except EsoptError as fault:
            reason = str(fault)
    log.warning("what the agent read stays hidden, for want of its tokenizer: %s", reason)
    return None
