"""Episodes of a whole population, pass by pass, and of a single model.

A pass holds `members_per_pass` members at once; the last one is filled up with idle members, so that every pass has the
same number of rows and one compiled program. What a member plays does not depend on the pass it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from esopt_jax.config import ESConfig, RolloutConfig
from esopt_jax.core.perturb import perturb_population
from esopt_jax.models.sharding import MEMBER
from esopt_jax.rollouts.chat import Chat
from esopt_jax.rollouts.driver import Episode, Limits, Pool, play
from esopt_jax.rollouts.engine import DevicePolicy, Engine, view_partition
from esopt_jax.rollouts.keys import environment_seeds
from esopt_jax.rollouts.sampler import Sampling
from esopt_jax.types import Environment, Master, Specs, Task, Trajectory, View

Case = tuple[int, Task]
"""A task and its index in the split, which names it in keys."""


@dataclass(frozen=True)
class Stage:
    """What does not change between rollouts: device programs, environment, chat, host threads and limits."""

    engine: Engine
    specs: Specs
    environment: Environment
    chat: Chat
    pool: Pool
    limits: Limits


def make_stage(
    engine: Engine, specs: Specs, environment: Environment, chat: Chat, pool: Pool, *, rollout: RolloutConfig
) -> Stage:
    """The stage of a config."""
    limits = Limits(max_turns=rollout.max_turns, max_prompt_tokens=rollout.max_prompt_tokens)
    return Stage(engine, specs, environment, chat, pool, limits)
