"""`summary.json`: what a run was and what came of it, the file that tables and readers use.

Every key is always there; null means that the run did not get that far or did not ask for it.

    schema, preset, task, model, config_hash, noise_spec, fingerprint      what was run
    status                        "finished", or "stopped" with the reason in `stopped_because`
    es_seed, eval_seed, generations, population_size, train_episodes, sampling
    base, final                   {metric, mean, ci95, episodes, mean_turns, invalid_action_rate, faults}, held-out
    gain                          {mean, ci95} of final - base, paired by puzzle
    base_by_sampling, final_by_sampling      the same records for "preset", "t0.7_p0.8" and "greedy"
    best_random                   record of the best of N single perturbations
    updates_skipped               generations without an update, since fitness did not differ between members
    abandoned_workers             host threads given up because a call of the environment hung
    wall_s, compile_s, rollout_tokens, tokens_per_s, peak_rss_bytes, digest
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esopt_jax.config import Config, config_hash
from esopt_jax.training.jsonl import write_json
from esopt_jax.training.memory import peak_rss_bytes
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.types import NOISE_SPEC

SCHEMA = 1

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


@dataclass(frozen=True)
class Totals:
    """What a run has done so far. `rollout_s` in seconds; `digest` is that of the weights after `generations`."""

    digest: str
    generations: int = 0
    train_episodes: int = 0
    rollout_tokens: int = 0
    rollout_s: float = 0.0
    updates_skipped: int = 0
    abandoned_workers: int = 0

    def after(self, row: Mapping[str, Any], digest: str) -> Totals:
        """The totals with the metrics row of one more generation."""
        return Totals(
            digest=digest,
            generations=self.generations + 1,
            train_episodes=self.train_episodes + row["episodes"] + row["faults"],
            rollout_tokens=self.rollout_tokens + row["tokens"],
            rollout_s=self.rollout_s + row["time/rollout_s"],
            updates_skipped=self.updates_skipped + row["update/skipped"],
            abandoned_workers=row["abandoned_workers"],
        )


def summarize(
    config: Config,
    totals: Totals,
    *,
    stopped_because: str | None,
    fingerprint: str,
    evaluations: Mapping[str, Any],
    wall_s: float,
    compile_s: float,
) -> dict[str, Any]:
    """The summary of a run, ready for JSON.

    Args:
        config: resolved config.
        totals: what it did.
        stopped_because: None for a run that finished.
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
        "status": "finished" if stopped_because is None else "stopped",
        "stopped_because": stopped_because,
        "es_seed": config.es.seed,
        "eval_seed": config.eval.seed,
        "generations": totals.generations,
        "population_size": config.es.population_size,
        "train_episodes": totals.train_episodes,
        "updates_skipped": totals.updates_skipped,
        "abandoned_workers": totals.abandoned_workers,
        "sampling": {name: getattr(config.rollout, name) for name in _SAMPLING},
        "base": evaluations.get("base"),
        "final": evaluations.get("final"),
        "gain": evaluations.get("gain"),
        "base_by_sampling": evaluations.get("base_by_sampling"),
        "final_by_sampling": evaluations.get("final_by_sampling"),
        "best_random": evaluations.get("best_random"),
        "wall_s": wall_s,
        "compile_s": compile_s,
        "rollout_tokens": totals.rollout_tokens,
        "tokens_per_s": totals.rollout_tokens / totals.rollout_s if totals.rollout_s else 0.0,
        "peak_rss_bytes": peak_rss_bytes(),
        "digest": totals.digest,
    }


def record_wall_s(run_dir: Path, wall_s: float) -> None:
    """Correct `wall_s` of a written summary, once whoever called `train` has done its own share."""
    path = RunFolder(run_dir).summary
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), "wall_s": wall_s})
