"""A config reduced to what decides the size and the work of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType

from esopt_jax.config import Config
from esopt_jax.core.scope import tuned_specs
from esopt_jax.models.architecture import Architecture
from esopt_jax.models.lora import adapter_specs
from esopt_jax.models.registry import leaf_specs
from esopt_jax.models.sharding import MEMBER, MODEL, leaf_sharding
from esopt_jax.rollouts.decode import DecodeSpec
from esopt_jax.rollouts.policy import padded_length
from esopt_jax.rollouts.sampler import Flags, sampling_flags
from esopt_jax.types import LeafSpec, Specs


@dataclass(frozen=True)
class Sizing:
    """A config reduced to what decides sizes.

    Attributes:
        arch: of the model.
        specs: its leaves, adapters included.
        config: the run.
        mesh: what a group of devices is, `(1, n)`.
        members: played at once by a group.
        columns: episodes of a member at once.
        evaluated: episodes of an evaluation that a group plays at once.
    """

    arch: Architecture
    specs: Specs
    config: Config
    mesh: AbstractMesh
    members: int
    columns: int
    evaluated: int

    @property
    def decode(self) -> DecodeSpec:
        """What is compiled into a decode; which ids end a reply changes no size."""
        rollout = self.config.rollout
        capacity = rollout.max_prompt_tokens + rollout.max_new_tokens
        return DecodeSpec(self.arch, (0,), self.arch.vocab_size, rollout.max_new_tokens, capacity)

    @property
    def prompt_width(self) -> int:
        """Tokens of the longest prompt, with padding."""
        return padded_length(self.config.rollout.max_prompt_tokens, self.decode.capacity)

    @property
    def flags(self) -> Flags:
        """Steps of the sampler."""
        return sampling_flags(self.config.rollout)

    @property
    def dtype(self) -> Any:
        """Compute type."""
        return jnp.dtype(self.config.model.dtype)

    @property
    def passes(self) -> int:
        """How often a group plays `members` until all have played."""
        return -(-self.config.es.population_size // (self.members * self.config.train.mesh[0]))

    def local_size(self, spec: LeafSpec) -> int:
        """Elements of a leaf that one device holds.

        Raises:
            EsoptError: an axis that does not divide over the devices of a group.
        """
        return math.prod(leaf_sharding(spec, self.mesh).shard_shape(spec.shape))


def sizing_of(arch: Architecture, config: Config) -> Sizing:
    """The sizes of a run of `config` with a model of `arch`.

    Raises:
        EsoptError: no leaf is in `es.scope`.
    """
    specs = leaf_specs(arch)
    specs = (*specs, *adapter_specs(specs, config.es.scope))
    tuned_specs(specs, config.es.scope)
    groups, width = config.train.mesh
    rollout, ev = config.rollout, config.eval
    played = rollout.cases * rollout.episodes_per_case
    episodes = ev.episodes * ev.repeats
    return Sizing(
        arch=arch,
        specs=specs,
        config=config,
        mesh=AbstractMesh((1, width), (MEMBER, MODEL), axis_types=(AxisType.Explicit, AxisType.Explicit)),
        members=-(-(config.es.members_per_pass or config.es.population_size) // groups),
        columns=min(rollout.slots or played, played),
        evaluated=-(-min(ev.rows or episodes, episodes) // groups),
    )


def episodes_per_generation(config: Config) -> int:
    """Episodes that the population plays in a generation.

    Example:
        >>> episodes_per_generation(Config())
        1024
    """
    return config.es.population_size * config.rollout.cases * config.rollout.episodes_per_case


def tokens_per_generation(config: Config) -> Mapping[str, int]:
    """Tokens that a generation reads and writes at most: every episode to its last turn, every turn to its limit."""
    rollout = config.rollout
    turns = episodes_per_generation(config) * rollout.max_turns
    return {"read_at_most": turns * rollout.max_prompt_tokens, "written_at_most": turns * rollout.max_new_tokens}
