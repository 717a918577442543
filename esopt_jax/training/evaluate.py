"""Held-out evaluation: the same tasks, seeds and keys for every policy and every run with one `eval.seed`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp

from esopt_jax.config import Config, RolloutConfig
from esopt_jax.core.master import base_view
from esopt_jax.rollouts.population import rollout_model
from esopt_jax.rollouts.sampler import Flags, make_sampling, sampling_flags
from esopt_jax.training.scoring import Evaluation, score
from esopt_jax.training.session import Session, open_session
from esopt_jax.training.source import Source, base_source
from esopt_jax.types import Master, Params, Trajectory, View

PRESET = "preset"


def evaluate(source: Source | Config) -> Evaluation:
    """Score a policy on the held-out tasks of its environment, under its config's own sampling.

    Args:
        source: what `load_source` returns; of a config, its base model.

    Raises:
        EsoptError: the config names something that cannot be had.
        StoppedError: every episode was lost to infrastructure errors.

    Example:
        >>> from esopt_jax.config_reader import load_config
        >>> evaluate(load_config("smoke", ["eval.episodes=4"])).episodes
        4
    """
    source = base_source(source) if isinstance(source, Config) else source
    with open_session(source.config, source.environment, source.model) as session:
        return evaluate_view(session, policy_view(session, source.weights), PRESET)[0]


def evaluate_view(session: Session, view: View, sampling: str) -> tuple[Evaluation, Sequence[Trajectory]]:
    """Score one view under the sampling of that name (`samplings`); also its episodes.

    Raises:
        StoppedError: every episode was lost to infrastructure errors.
    """
    config = session.config
    episodes = rollout_model(
        session.stage,
        view,
        session.held_out,
        seed=config.eval.seed,
        sampling=make_sampling(samplings(config.rollout)[sampling], flags=_flags(config)),
        repeats=config.eval.repeats,
        rows=config.eval.rows,
    )
    cases = [index for index, _ in session.held_out]
    return score(episodes, cases=cases, seed=config.eval.seed), episodes


def policy_view(session: Session, weights: Master | Params) -> View:
    """What the forward pass reads of weights in a master format, or plain."""
    return base_view(weights, specs=session.model.specs, dtype=jnp.dtype(session.config.model.dtype))


def samplings(rollout: RolloutConfig) -> dict[str, RolloutConfig]:
    """The samplings that base and final are compared under, so that colder sampling cannot pass for learning.

    Example:
        >>> list(samplings(RolloutConfig(top_k=20)))
        ['preset', 't0.7_p0.8', 'greedy']
    """
    return {
        PRESET: rollout,
        "t0.7_p0.8": dataclasses.replace(rollout, temperature=0.7, top_p=0.8),
        "greedy": dataclasses.replace(rollout, temperature=0.0),
    }


def _flags(config: Config) -> Flags:
    """One compiled program serves all evaluations of a run."""
    every = samplings(config.rollout)
    return sampling_flags(*(every.values() if config.eval.by_sampling else [every[PRESET]]))
