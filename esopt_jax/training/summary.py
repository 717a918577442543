"""`summary.json`: what a run was and what came of it, the file that tables and readers use.

Every key is always there; null means that the run did not get that far or did not ask for it.

    schema, preset, method, task, model, config_hash, noise_spec, fingerprint      what was run
    status                        "running", "finished", or "stopped" with the reason in `stopped_because`
    es_seed, eval_seed, generations, population_size, train_episodes, sampling
                                  `population_size` is the size of a group where the method has no population
    base, final                   {metric, mean, ci95, episodes, mean_turns, invalid_action_rate, faults}, held-out
    gain                          {mean, ci95} of final - base, paired by puzzle
    base_by_sampling, final_by_sampling      the same records for "preset", "t0.7_p0.8" and "greedy"
    best_random                   record of the best of N single perturbations
    randopt, randopt_vote         of a run of method randopt: of its best perturbation, and of the vote of the best
    updates_skipped               generations without an update, since fitness did not differ between members
    abandoned_workers             host threads given up because a call of the environment hung
    wall_s, compile_s, rollout_tokens, tokens_per_s, peak_rss_bytes, digest

A run that was resumed counts all its processes; `wall_s` and `compile_s` of a killed one up to its last row of metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esopt_jax.config import Config, config_hash
from esopt_jax.training.evaluate import PRESET, samplings
from esopt_jax.training.evaluations import BEST_RANDOM, RANDOPT, RANDOPT_VOTE, TUNED, EvaluationLog, Scored
from esopt_jax.training.jsonl import read_json, write_json
from esopt_jax.training.memory import peak_rss_bytes
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.scoring import gain
from esopt_jax.types import NOISE_SPEC

SCHEMA = 1

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


@dataclass(frozen=True)
class Totals:
    """What a run has done so far. `rollout_s` in seconds; `digest` is that of the weights after `generations`.

    `earlier_wall_s` and `earlier_compile_s` are those of the processes before this one, `earlier_abandoned` their
    abandoned workers.
    """

    digest: str
    generations: int = 0
    train_episodes: int = 0
    rollout_tokens: int = 0
    rollout_s: float = 0.0
    updates_skipped: int = 0
    abandoned_workers: int = 0
    earlier_wall_s: float = 0.0
    earlier_compile_s: float = 0.0
    earlier_abandoned: int = 0

    def after(self, row: Mapping[str, Any], digest: str) -> Totals:
        """The totals with the metrics row of one more generation; what a row cannot tell counts as nothing."""
        return dataclasses.replace(
            self,
            digest=digest,
            generations=self.generations + 1,
            train_episodes=self.train_episodes + (row.get("episodes") or 0) + (row.get("faults") or 0),
            rollout_tokens=self.rollout_tokens + (row.get("tokens") or 0),
            rollout_s=self.rollout_s + (row.get("time/rollout_s") or 0.0),
            updates_skipped=self.updates_skipped + (row.get("update/skipped") or 0),
            abandoned_workers=max(self.abandoned_workers, row.get("abandoned_workers") or 0),
        )


def summarize(
    config: Config,
    totals: Totals,
    evaluations: EvaluationLog,
    *,
    status: str,
    stopped_because: str | None,
    fingerprint: str,
    wall_s: float,
    compile_s: float,
) -> dict[str, Any]:
    """The summary of a run, ready for JSON.

    Args:
        config: resolved config.
        totals: what it did.
        evaluations: its held-out scores.
        status: `running`, `stopped` or `finished`.
        stopped_because: the reason of a run that stopped.
        fingerprint: of the platform.
        wall_s: since the start of the command, and of the commands before it.
        compile_s: of it, spent compiling.
    """
    last = config.es.generations
    base, final = (evaluations.get(Scored(updates, TUNED, PRESET)) for updates in (0, last))
    best, randopt, vote = (evaluations.get(Scored(last, of, PRESET)) for of in (BEST_RANDOM, RANDOPT, RANDOPT_VOTE))
    return {
        "schema": SCHEMA,
        "preset": config.preset,
        "method": config.method,
        "task": config.env.name,
        "model": config.model.path,
        "config_hash": config_hash(config),
        "noise_spec": NOISE_SPEC,
        "fingerprint": fingerprint,
        "status": status,
        "stopped_because": stopped_because,
        "es_seed": config.es.seed,
        "eval_seed": config.eval.seed,
        "generations": totals.generations,
        "population_size": config.grpo.group_size if config.method == "grpo" else config.es.population_size,
        "train_episodes": totals.train_episodes,
        "updates_skipped": totals.updates_skipped,
        "abandoned_workers": totals.abandoned_workers,
        "sampling": {name: getattr(config.rollout, name) for name in _SAMPLING},
        "base": None if base is None else base.record(),
        "final": None if final is None else final.record(),
        "gain": None if base is None or final is None else gain(base, final, seed=config.eval.seed),
        "base_by_sampling": _by_sampling(config, evaluations, 0),
        "final_by_sampling": _by_sampling(config, evaluations, last),
        "best_random": None if best is None else best.record(),
        "randopt": None if randopt is None else randopt.record(),
        "randopt_vote": None if vote is None else vote.record(),
        "wall_s": wall_s,
        "compile_s": compile_s,
        "rollout_tokens": totals.rollout_tokens,
        "tokens_per_s": totals.rollout_tokens / totals.rollout_s if totals.rollout_s else 0.0,
        "peak_rss_bytes": peak_rss_bytes(),
        "digest": totals.digest,
    }


def _by_sampling(config: Config, evaluations: EvaluationLog, updates: int) -> dict[str, Any] | None:
    """The records under every sampling, once all are there."""
    found = {name: evaluations.get(Scored(updates, TUNED, name)) for name in samplings(config.rollout)}
    if not config.eval.by_sampling or None in found.values():
        return None
    return {name: result.record() for name, result in found.items() if result is not None}


def add_wall_s(run_dir: Path, seconds: float) -> None:
    """Add to `wall_s` of a written summary what whoever called `train` has done since."""
    path = RunFolder(run_dir).summary
    summary = read_json(path)
    write_json(path, {**summary, "wall_s": summary["wall_s"] + seconds})
