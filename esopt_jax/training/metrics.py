"""`metrics.jsonl`: one row a generation and one an evaluation, each on the disk when it is written.

`generation` counts from 0. Row g of the population describes members perturbed around the weights after g updates, and
an evaluation at g scores those weights themselves, so that both share one axis. Names are TRL's where the meaning is
equal. A value that does not exist (a mean of nothing) is null.

    reward                        mean reward of the episodes that count
    reward_std                    standard deviation of reward over members (episodes of a group) on one case, averaged
    frac_reward_zero_std          share of cases on which all of them got the same reward: nothing to learn from
    completions/mean_length       tokens of a completion, mean over turns
    completions/clipped_ratio     share of completions cut at rollout.max_new_tokens
    fitness/mean, fitness/std, fitness/best         over members, before shaping
    sigma, alpha                  perturbation scale and step size
    update_norm                   l2 norm of the intended update
    update/applied_fraction       share of the weights' intended changes that the master format kept
    update/cosine                 between intended and applied update
    update/skipped                1 when fitness did not differ between members, or by request, else 0
    episodes                      episodes that count
    turns/mean                    turns of an episode
    invalid_action_rate           share of turns whose action the environment rejected
    repeated_action_rate          share of turns whose reply was given before in the same episode
    faults                        episodes lost to infrastructure errors
    excluded_cases                columns of episodes dropped for all members because of them
    abandoned_workers             host threads given up so far, because a call of the environment hung
    tokens                        generated
    tokens_read                   of prompts, each once for every time that it was read
    tokens_per_s                  of them, per second of `time/rollout_s`
    time/rollout_s                seconds of perturbing, replying and playing
    time/perturb_s                seconds of it spent on making members
    time/prefill_s, time/decode_s on reading prompts, and on writing replies
    time/environment_s            on waiting for the environment while there was nothing to write
    time/host_s                   on everything else: tokens to text and back, rows, records
    time/idle_share               share of the rows' steps in which a row had ended or had no episode
    time/product_share            share of `time/decode_s` that the matrix products of its steps take alone (`bound`)
    time/update_s                 seconds of the update, the digest and writing both down
    time/compile_s                seconds of the generation spent compiling; part of `time/rollout_s`, of no phase
    memory/host_peak_bytes        largest resident memory of the process so far
    memory/device_peak_bytes      the same of the first device, where it tells
    grpo/loss, grpo/kl            of a step of method grpo: its loss, and the divergence from the start in it
    grpo/clip_fraction            share of tokens, weighed as in the loss, whose ratio was clipped
    grpo/ratio_off                largest distance of a token's ratio from 1
    grpo/grad_norm                length of the gradient before it is cut short, mean over optimiser steps
    grpo/lr, grpo/optimizer_steps learning rate, and how many optimiser steps were taken
    drift/...                     of weights and answers from the start: see `drift`
    eval/solve_rate               of held-out tasks
    eval/ci_low, eval/ci_high     its 95 % interval
    eval/episodes, eval/mean_turns, eval/invalid_action_rate, eval/faults         as above
    time/eval_s                   seconds of the evaluation
    wall_s                        seconds that the run has been going, over all its processes
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from esopt_jax.core.replay import Record
from esopt_jax.core.update import UpdateStats
from esopt_jax.errors import EsoptError
from esopt_jax.training.generation import Generation
from esopt_jax.training.memory import peak_rss_bytes
from esopt_jax.training.scoring import Evaluation
from esopt_jax.types import Trajectory

_MOST = 1e18
"""No metric is as large: bytes, tokens and seconds all stay far below."""


def rollout_metrics(generation: Generation, *, abandoned: int) -> dict[str, Any]:
    """The part of a generation's row that is known before its update, and that a replay could not tell again.

    Args:
        generation: what the population did.
        abandoned: workers given up so far.
    """
    episodes = episode_metrics([episode for own in generation.episodes for episode in own])
    record = generation.record
    return finite(
        {
            "generation": record.generation,
            **episodes,
            **record_metrics(record),
            "abandoned_workers": abandoned,
            "tokens_per_s": episodes["tokens"] / generation.rollout_s,
            "time/rollout_s": generation.rollout_s,
            **generation.times,
        }
    )


def record_metrics(record: Record) -> dict[str, Any]:
    """What the history itself tells of a generation."""
    return {
        "generation": record.generation,
        "fitness/mean": float(record.fitness.mean()),
        "fitness/std": float(record.fitness.std()),
        "fitness/best": float(record.fitness.max()),
        "sigma": record.sigma,
        "alpha": record.alpha,
        "excluded_cases": len(record.excluded),
    }


def update_metrics(stats: UpdateStats | None, *, update_s: float) -> dict[str, Any]:
    """The part that the update adds; `stats` is None when there was none."""
    return finite(
        {
            "update_norm": 0.0 if stats is None else float(stats.update_norm),
            "update/applied_fraction": math.nan if stats is None else float(stats.applied_fraction),
            "update/cosine": math.nan if stats is None else float(stats.cosine),
            "update/skipped": int(stats is None),
            "time/update_s": update_s,
        }
    )


def finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with null for every number that is not finite, which JSON cannot say."""
    bad = {name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)}
    return {name: None if name in bad else value for name, value in row.items()}


def memory_metrics() -> dict[str, int]:
    """Largest memory so far in bytes: of the process, and of the first device where it tells."""
    device = jax.local_devices()[0].memory_stats() or {}
    peak = {"memory/device_peak_bytes": device["peak_bytes_in_use"]} if "peak_bytes_in_use" in device else {}
    return {"memory/host_peak_bytes": peak_rss_bytes(), **peak}


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
        "repeated_action_rate": _mean(again for episode in played for again in _repeats(episode)),
        "faults": len(episodes) - len(played),
        "tokens": sum(len(turn.completion_ids) for episode in episodes for turn in episode.turns),
    }


def _repeats(episode: Trajectory) -> Iterable[bool]:
    """For every turn whether its reply was given before; what the agent read then may have been something else."""
    said: set[str] = set()
    for turn in episode.turns:
        yield turn.text in said
        said.add(turn.text)


def _spread_over_members(episodes: Iterable[Trajectory]) -> list[float]:
    """Standard deviation over members of the mean reward on a case, for every case that several could play."""
    rewards: dict[int, dict[int, list[float]]] = {}
    for episode in episodes:
        rewards.setdefault(episode.case, {}).setdefault(episode.member, []).append(episode.reward)
    shared = [members for members in rewards.values() if len(members) > 1]
    return [float(np.std([np.mean(own) for own in members.values()])) for members in shared]


def _mean(values: Iterable[float]) -> float:
    numbers = np.fromiter(values, np.float64)
    return float(numbers.mean()) if len(numbers) else math.nan


def evaluation_metrics(updates: int, result: Evaluation, *, eval_s: float) -> dict[str, Any]:
    """The row of one evaluation."""
    return finite({"generation": updates, **result.metrics(), "time/eval_s": eval_s})


def check_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse rows that no run wrote.

    Raises:
        EsoptError: a row names no generation, or holds something else than numbers; the message names its line.
    """
    for number, row in enumerate(rows, 1):
        if type(row.get("generation")) is not int:
            raise EsoptError(f"{path}, line {number} is no row of metrics; delete the line to go on without it")
        for name, value in row.items():
            known = value is None or (type(value) in (int, float) and abs(value) < _MOST)
            if not known:
                raise EsoptError(f"{path}, line {number}: {name} is {value!r:.60}; it must be a number or null")
