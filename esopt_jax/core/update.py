"""The update: `theta + (alpha / N) * sum_i w_i eps_i`, with every `eps_i` drawn again and none stored.

Source: Salimans et al. (2017), Evolution Strategies as a Scalable Alternative to Reinforcement Learning, Algorithm 1,
without the division by sigma. Maximises. Leaf by leaf, in row blocks; members are added in index order in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from esopt_jax.core.layout import forms_of, make_layout
from esopt_jax.core.noise import leaf_hashes, noise_key
from esopt_jax.core.perturb import NO_MULTIPLIERS, group_multipliers
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.steps import update_large, update_pool
from esopt_jax.errors import EsoptError
from esopt_jax.types import Fitness, Key, Master, Plan, Purpose, Rounding, Specs


@struct.dataclass
class UpdateStats:
    """What an update meant to do and what storage let it do. Scalars, float32.

    Attributes:
        update_norm: Euclidean length of the intended step.
        applied_norm: length of the step that the stored weights made.
        applied_fraction: share of the weights with a nonzero intended step whose stored value changed; 1 if none.
        cosine: between intended and applied step; 1 if nothing was intended.
    """

    update_norm: Any
    applied_norm: Any
    applied_fraction: Any
    cosine: Any


Update: TypeAlias = Callable[..., tuple[Master, UpdateStats]]
"""`update(seed, generation, master, weights [P], alpha) -> (master, stats)`."""


def make_update(
    specs: Specs,
    *,
    population_size: int,
    plan: Plan,
    rank: int,
    antithetic: bool = False,
    rounding: Rounding = "nearest",
    multipliers: Mapping[str, float] = NO_MULTIPLIERS,
    scope: str = "full",
) -> Update:
    """The update of a run, compiled once per kind of leaf.

    Args:
        specs: the leaf table.
        population_size: P, all members.
        plan: `full` or `low_rank`, as the members were perturbed.
        rank: R; read by the low-rank plan only.
        antithetic: members 2k and 2k+1 are mirror images; their common noise is drawn once.
        rounding: how a `bfloat16` master rounds; other formats are exact.
        multipliers: leaf group -> factor on eps, as the members were perturbed.
        scope: which leaves are updated, as the members were perturbed; the arrays of others are passed on.

    Returns:
        `update(seed, generation, master, weights, alpha) -> (master, UpdateStats)`. `weights` are `[P]` float32 shaped
        fitness, `alpha` the learning rate. The arrays of `master` are donated: use the returned ones. When all weights
        are equal to 0 the master keeps every bit.

    Raises:
        EsoptError: an odd population with `antithetic`; when called, weights of another length.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (3, 2), (None, None), 1, "normal", "w"),)
        >>> update = make_update(specs, population_size=2, plan="full", rank=1)
        >>> master, stats = update(0, 0, {"w": jnp.ones((3, 2))}, jnp.array([1.0, -1.0]), 0.1)
        >>> master["w"].shape, float(stats.applied_fraction)
        ((3, 2), 1.0)
    """
    if antithetic and population_size % 2:
        raise EsoptError(f"population_size is {population_size}; antithetic members come in pairs: make it even")
    every, specs = specs, tuned_specs(specs, scope)
    layout, hashes, factors = make_layout(specs, plan), leaf_hashes(specs), group_multipliers(specs, multipliers)

    def update(
        seed: jax.Array | int,
        generation: jax.Array | int,
        master: Master,
        weights: Fitness,
        alpha: jax.Array | float,
    ) -> tuple[Master, UpdateStats]:
        if np.shape(weights) != (population_size,):
            raise EsoptError(f"weights have shape {np.shape(weights)}; the population has {population_size} members")
        keys, coefficients = _draws(jnp.uint32(seed), jnp.uint32(generation), _f32(weights), antithetic=antithetic)
        dither = noise_key(seed, generation, 0, purpose=Purpose.ROUNDING) if rounding == "stochastic" else None
        steps = _steps(_f32(alpha), factors, population_size=population_size)
        updated: dict[int, Any] = {}
        moments = []
        for index, r in ((layout.pooled, 0), (layout.pooled_factors, rank)):
            if ids := list(index):
                leaves, forms = tuple(master[specs[i].path] for i in ids), forms_of(specs, ids)
                outs, moment = update_pool(
                    keys, leaves, coefficients, hashes[ids], steps[np.array(ids)], dither, forms=forms, rank=r
                )
                updated |= zip(ids, outs, strict=True)
                moments.append(moment)
        for index, r in ((layout.large, 0), (layout.large_factors, rank)):
            for i in index:
                leaf, form = master[specs[i].path], specs[i].noise_form
                updated[i], moment = update_large(
                    keys, leaf, coefficients, hashes[i], steps[i], dither, form=form, rank=r
                )
                moments.append(moment)
        tuned = {spec.path: updated[i] for i, spec in enumerate(specs)}
        return {s.path: tuned[s.path] if s.path in tuned else master[s.path] for s in every}, _stats(moments)

    return update


def update(
    seed: jax.Array | int,
    generation: jax.Array | int,
    master: Master,
    weights: Fitness,
    *,
    specs: Specs,
    alpha: jax.Array | float,
    plan: Plan = "full",
    rank: int = 1,
    antithetic: bool = False,
    rounding: Rounding = "nearest",
    multipliers: Mapping[str, float] = NO_MULTIPLIERS,
    scope: str = "full",
) -> tuple[Master, UpdateStats]:
    """One update, for a notebook; a loop calls what `make_update` returns, whose arguments these are.

    The arrays of `master` are used up: keep the returned ones, or a copy.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (3, 2), (None, None), 1, "normal", "w"),)
        >>> master, _ = update(0, 0, {"w": jnp.ones((3, 2))}, jnp.array([1.0, -1.0]), specs=specs, alpha=0.1)
        >>> bool((master["w"] != 1).all())
        True
    """
    step = make_update(
        specs,
        population_size=np.shape(weights)[0],
        plan=plan,
        rank=rank,
        antithetic=antithetic,
        rounding=rounding,
        multipliers=multipliers,
        scope=scope,
    )
    return step(seed, generation, master, weights, alpha)


@partial(jax.jit, static_argnames="antithetic")
def _draws(seed: jax.Array, generation: jax.Array, weights: jax.Array, *, antithetic: bool) -> tuple[Key, jax.Array]:
    """Keys and coefficients, both `[K]`, of the draws: one a member, or one an antithetic pair."""
    coefficients = weights[0::2] - weights[1::2] if antithetic else weights
    draws = jnp.arange(coefficients.shape[0], dtype=jnp.uint32)
    return jax.vmap(lambda draw: noise_key(seed, generation, draw))(draws), coefficients


@partial(jax.jit, static_argnames="population_size")
def _steps(alpha: jax.Array, multipliers: jax.Array, *, population_size: int) -> jax.Array:
    return alpha / np.float32(population_size) * multipliers


@jax.jit
def _stats(moments: list[jax.Array]) -> UpdateStats:
    intended, applied, product, should, did = jnp.stack(moments).sum(axis=0)
    lengths = jnp.sqrt(intended) * jnp.sqrt(applied)
    return UpdateStats(
        update_norm=jnp.sqrt(intended),
        applied_norm=jnp.sqrt(applied),
        applied_fraction=jnp.where(should > 0, did / jnp.maximum(should, 1), 1.0),
        cosine=jnp.where(lengths > 0, product / jnp.where(lengths > 0, lengths, 1), jnp.where(intended > 0, 0.0, 1.0)),
    )


def _f32(x: Any) -> jax.Array:
    return jnp.asarray(x, jnp.float32)
