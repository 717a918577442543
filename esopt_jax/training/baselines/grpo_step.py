"""One step of GRPO: groups of episodes by the policy itself, their advantages, and one or several steps of AdamW."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from esopt_jax.config import Config
from esopt_jax.errors import StoppedError
from esopt_jax.rollouts.fitness import FAULT_LIMIT, common_fault
from esopt_jax.rollouts.population import rollout_model
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.baselines.grpo_batch import Batch, Conversation, conversations, make_batches
from esopt_jax.training.baselines.grpo_learner import Learner, Sums
from esopt_jax.training.baselines.grpo_loss import group_advantages
from esopt_jax.training.cases import permutation
from esopt_jax.training.evaluate import policy_view
from esopt_jax.training.session import Session
from esopt_jax.types import Master, Purpose, Trajectory


@dataclass(frozen=True)
class Groups:
    """What a step played.

    Attributes:
        episodes: all, those of a task side by side.
        cases: `[tasks]` indices.
        returns: `[tasks, group_size]`, NaN for infrastructure errors.
        advantages: the same, 0 where there is nothing to learn from.
        rollout_s: seconds of playing.
    """

    episodes: Sequence[Trajectory]
    cases: tuple[int, ...]
    returns: np.ndarray
    advantages: np.ndarray
    rollout_s: float


@dataclass
class Student:
    """What a run changes: weights and moments. Their arrays are donated from step to step."""

    weights: Master
    moments: Any


def play_groups(session: Session, weights: Master, step: int) -> Groups:
    """Let the policy play its tasks of a step, each several times.

    Raises:
        StoppedError: more than half of the episodes were lost to infrastructure errors.
    """
    config, cases = session.config, session.training_cases(step)
    started = time.perf_counter()
    episodes = rollout_model(
        session.stage,
        policy_view(session, weights),
        cases,
        seed=config.es.seed,
        sampling=make_sampling(config.rollout),
        repeats=config.grpo.group_size,
        rows=config.rollout.slots,
        generation=step,
    )
    rollout_s = time.perf_counter() - started
    returns = np.array([np.nan if e.outcome == "error" else e.reward for e in episodes])
    returns = returns.reshape(len(cases), config.grpo.group_size)
    if np.isnan(returns).mean() > FAULT_LIMIT:
        reason, times = common_fault(episodes)
        raise StoppedError(
            f"{np.isnan(returns).sum()} of {returns.size} episodes of a step failed in the environment, {times} of "
            f"them with: {reason}; fix the environment, or raise rollout.step_timeout_s if it is only slow"
        )
    indices = tuple(index for index, _ in cases)
    return Groups(episodes, indices, returns, _advantages(returns, config, step), rollout_s)


def _advantages(returns: np.ndarray, config: Config, step: int) -> np.ndarray:
    """The advantages; the controls act here, as they do on the fitness of a population."""
    if config.es.control == "zero_update":
        return np.zeros(returns.shape, np.float32)
    if config.es.control == "shuffled_rewards":
        order = permutation(config.es.seed, returns.size, purpose=Purpose.CONTROL, index=step)
        shuffled = returns.reshape(-1)[order].reshape(returns.shape)
        there = ~(np.isnan(returns) | np.isnan(shuffled))
        return group_advantages(np.where(there, shuffled, np.nan), scaled=config.grpo.scaled)
    return group_advantages(returns, scaled=config.grpo.scaled)


def learn(
    student: Student, groups: Groups, step: int, *, config: Config, learner: Learner, base: Master | None, capacity: int
) -> tuple[Student, dict[str, Any]]:
    """The student after a step, and its metrics. Without any advantage nothing changes, whatever the divergence.

    Args:
        student: used up.
        groups: what it played.
        step: 0-based.
        config: of the run.
        learner: its programs.
        base: the start, from which the divergence counts; None where `grpo.beta` is 0.
        capacity: tokens of the longest conversation.
    """
    grpo = config.grpo
    lr = learning_rate(config, step)
    if not groups.advantages.any():
        return student, _metrics([], [], lr)
    chosen = [
        one
        for episode, advantage in zip(groups.episodes, groups.advantages.reshape(-1).tolist(), strict=True)
        if episode.outcome != "error"
        for one in conversations(episode, advantage)
    ]
    prepared = []
    for part in _parts(chosen, config, step):
        batches = make_batches(part, size=grpo.micro_batch, capacity=capacity, average=grpo.average, idle=grpo.beta > 0)
        # All old log-probabilities come before the first optimiser step, which changes what they would be.
        old = [None if grpo.batches == 1 else learner.log_probs(student.weights, batch).drawn for batch in batches]
        prepared.append((batches, old))
    sums, norms = [], []
    for batches, old in prepared:
        if batches:
            student, found, norm = _optimise(student, batches, old, base, lr, learner)
            sums += found
            norms.append(norm)
    return student, _metrics(sums, norms, lr)


def learning_rate(config: Config, step: int) -> float:
    """AdamW's at a step: it rises over `grpo.warmup` steps, then stays."""
    return config.grpo.lr * min(1.0, (step + 1) / (config.grpo.warmup + 1))


def _parts(chosen: Sequence[Conversation], config: Config, step: int) -> list[list[Conversation]]:
    """The conversations of each optimiser step: a seeded deal, whose parts differ by one at most."""
    if config.grpo.batches == 1:
        return [list(chosen)]
    order = permutation(config.es.seed, len(chosen), purpose=Purpose.BATCHES, index=step)
    parts = np.array_split(order, config.grpo.batches)
    return [[chosen[i] for i in part] for part in parts if len(part)]


def _optimise(
    student: Student,
    batches: Sequence[Batch],
    old: Sequence[jax.Array | None],
    base: Master | None,
    lr: float,
    learner: Learner,
) -> tuple[Student, list[Sums], jax.Array]:
    """One step of AdamW on the summed gradient of `batches`."""
    gradients: Master = {path: jnp.zeros_like(student.weights[path]) for path in sorted(learner.tuned)}
    sums = []
    for batch, before in zip(batches, old, strict=True):
        reference = None if base is None else learner.log_probs(base, batch).open
        gradients, found = learner.gradient(student.weights, gradients, batch, before, reference)
        sums.append(found)
    weights, moments, norm = learner.apply(student.weights, student.moments, gradients, np.float32(lr))
    return Student(weights, moments), sums, norm


def _metrics(sums: Sequence[Sums], norms: Sequence[jax.Array], lr: float) -> dict[str, Any]:
    """Means over the optimiser steps; nothing happened where there is none."""
    sums, norms = jax.device_get((list(sums), list(norms)))
    steps = max(len(norms), 1)
    return {
        "grpo/loss": float(sum(part.loss for part in sums)) / steps,
        "grpo/kl": float(sum(part.divergence for part in sums)) / steps,
        "grpo/clip_fraction": float(sum(part.clipped for part in sums)) / steps,
        "grpo/ratio_off": float(max((part.off for part in sums), default=0.0)),
        "grpo/grad_norm": float(np.mean(norms)) if norms else 0.0,
        "grpo/lr": lr,
        "grpo/optimizer_steps": len(norms),
        "update/skipped": int(not norms),
    }
