"""`metrics.jsonl`: one row a generation and one an evaluation, each on its way to the disk when it is written.

`generation` counts from 0. Row g of the population describes members perturbed around the weights after g updates, and
an evaluation at g scores those weights themselves, so that both share one axis. Names are TRL's where the meaning is
equal. A value that does not exist (a mean of nothing) is null.

    reward                        mean reward of the episodes that count
    reward_std                    standard deviation of reward over members on one case, averaged over cases
    frac_reward_zero_std          share of cases on which all members got the same reward: nothing to learn from
    completions/mean_length       tokens of a completion, mean over turns
    completions/clipped_ratio     share of completions cut at rollout.max_new_tokens
    fitness/mean, std, best       over members, before shaping
    sigma, alpha                  perturbation scale and step size of this generation
    update_norm                   l2 norm of the intended update
    update/applied_fraction       share of the weights' intended changes that the master format kept
    update/cosine                 between intended and applied update
    update/skipped                1 when fitness did not differ between members, or by request, else 0
    episodes                      episodes that count
    turns/mean                    turns of an episode
    invalid_action_rate           share of turns whose action the environment rejected
    faults                        episodes lost to infrastructure errors
    excluded_cases                cases dropped for all members because of them
    tokens, tokens_per_s          tokens generated, and per second of rollout
    time/rollout_s, update_s      seconds; the parts of `rollout_s` overlap
    time/compile_s                seconds of the generation spent compiling
    memory/host_peak_bytes        largest resident memory of the process so far
    eval/solve_rate               of held-out tasks, with its 95 % interval eval/ci_low .. eval/ci_high
    eval/episodes, eval/mean_turns, eval/invalid_action_rate, eval/faults
    time/eval_s                   seconds of the evaluation
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.training.jsonl import append
from esopt_jax.types import Trajectory


class MetricsWriter:
    """Appends rows and flushes each. A context manager."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("x", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row; a number that is not finite becomes null."""
        append(self._stream, {name: _finite(value) for name, value in row.items()})

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def episode_metrics(episodes: Sequence[Trajectory]) -> dict[str, float]:
    """What the episodes of one generation were like: the part of a row that needs no optimiser."""
    played = [episode for episode in episodes if episode.outcome != "error"]
    turns = [turn for episode in played for turn in episode.turns]
    spread = _spread_over_members(played)
    return {
        "reward": _mean(episode.reward for episode in played),
        "reward_std": _mean(spread),
        "frac_reward_zero_std": _mean(std == 0 for std in spread),
        "completions/mean_length": _mean(len(turn.completion_ids) for turn in turns),
        "completions/clipped_ratio": _mean(turn.truncated for turn in turns),
        "episodes": len(played),
        "turns/mean": _mean(len(episode.turns) for episode in played),
        "invalid_action_rate": _mean(turn.invalid for turn in turns),
        "faults": len(episodes) - len(played),
        "tokens": sum(len(turn.completion_ids) for episode in episodes for turn in episode.turns),
    }


def _spread_over_members(episodes: Iterable[Trajectory]) -> list[float]:
    """Standard deviation over members of the mean reward on a case, for every case."""
    rewards: dict[int, dict[int, list[float]]] = {}
    for episode in episodes:
        rewards.setdefault(episode.case, {}).setdefault(episode.member, []).append(episode.reward)
    return [float(np.std([np.mean(own) for own in members.values()])) for members in rewards.values()]


def _mean(values: Iterable[float]) -> float:
    numbers = np.fromiter(values, np.float64)
    return float(numbers.mean()) if len(numbers) else math.nan


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
