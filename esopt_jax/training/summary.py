"""`summary.json`: what a run was and what came of it, the file that tables and readers use.

Every key is always there; null means that the run did not get that far or did not ask for it.

    schema, preset, task, model, config_hash, noise_spec, fingerprint      what was run
    status                        "finished", or "stopped" with the reason in `stopped_because`
    es_seed, eval_seed, generations, population_size, train_episodes, sampling
    base, final                   {metric, mean, ci95, episodes, mean_turns, invalid_action_rate, faults}, held-out
    gain                          {mean, ci95} of final - base, paired by puzzle
    base_by_sampling, final_by_sampling      the same records for "preset", "t0.7_p0.8" and "greedy"
    best_random                   record of the best of N single perturbations
    updates_skipped               generations whose fitness did not differ between members
    wall_s, compile_s, rollout_tokens, tokens_per_s, peak_rss_bytes, digest
"""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esopt_jax.config import Config, config_hash
from esopt_jax.training.jsonl import write_json
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.types import NOISE_SPEC

SCHEMA = 1

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is: everything in the summary that the config does not say. Times in seconds."""

    generations: int = 0
    train_episodes: int = 0
    rollout_tokens: int = 0
    rollout_s: float = 0.0
    updates_skipped: int = 0
    digest: str | None = None


def summarize(
    config: Config,
    progress: Progress,
    *,
    status: str,
    stopped_because: str | None,
    fingerprint: str,
    evaluations: Mapping[str, Any],
    wall_s: float,
    compile_s: float,
) -> dict[str, Any]:
    """The summary of a run, ready for JSON.

    Args:
        config: resolved config.
        progress: how far it came.
        status: `"finished"` or `"stopped"`.
        stopped_because: reason of a stop, else None.
        fingerprint: of the platform.
        evaluations: any of `base`, `final`, `gain`, `base_by_sampling`, `final_by_sampling`, `best_random`.
        wall_s: since the start of the command.
        compile_s: of it, spent compiling.
    """
    return {
        "schema": SCHEMA,
        "preset": config.preset,
        "task": config.env.name,
        "model": config.model.path,
        "config_hash": config_hash(config),
        "noise_spec": NOISE_SPEC,
        "fingerprint": fingerprint,
        "status": status,
        "stopped_because": stopped_because,
        "es_seed": config.es.seed,
        "eval_seed": config.eval.seed,
        "generations": progress.generations,
        "population_size": config.es.population_size,
        "train_episodes": progress.train_episodes,
        "updates_skipped": progress.updates_skipped,
        "sampling": {name: getattr(config.rollout, name) for name in _SAMPLING},
        "base": evaluations.get("base"),
        "final": evaluations.get("final"),
        "gain": evaluations.get("gain"),
        "base_by_sampling": evaluations.get("base_by_sampling"),
        "final_by_sampling": evaluations.get("final_by_sampling"),
        "best_random": evaluations.get("best_random"),
        "wall_s": wall_s,
        "compile_s": compile_s,
        "rollout_tokens": progress.rollout_tokens,
        "tokens_per_s": progress.rollout_tokens / progress.rollout_s if progress.rollout_s else 0.0,
        "peak_rss_bytes": peak_rss_bytes(),
        "digest": progress.digest,
    }


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def record_wall_s(run_dir: Path, wall_s: float) -> None:
    """Correct `wall_s` of a written summary, once whoever called `train` has done its own share."""
    path = RunFolder(run_dir).summary
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), "wall_s": wall_s})
