"""The update: `theta + (alpha / N) * sum_i w_i eps_i`, with every `eps_i` drawn again and none stored.

Source: Salimans et al. (2017), Evolution Strategies as a Scalable Alternative to Reinforcement Learning, Algorithm 1,
without the division by sigma. Maximises. Leaf by leaf, in row blocks; members are added in index order in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from esopt_jax.core.estimate import combine
from esopt_jax.core.groups import block_rows, group_leaves, stack_fields, unstack
from esopt_jax.core.noise import factor_words, leaf_hashes, leaf_words, noise_key
from esopt_jax.core.normals import join_pairs, word_pairs, zeros_like_draw
from esopt_jax.core.perturb import NO_MULTIPLIERS, group_multipliers
from esopt_jax.core.rounding import Fields, MasterLeaf, leaf_of, read_fields, write_fields
from esopt_jax.errors import EsoptError
from esopt_jax.types import Fitness, Master, Plan, Purpose, Rounding, Specs


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
    hashes, factors = leaf_hashes(specs), group_multipliers(specs, multipliers)

    def update(
        seed: jax.Array | int,
        generation: jax.Array | int,
        master: Master,
        weights: Fitness,
        alpha: jax.Array | float,
    ) -> tuple[Master, UpdateStats]:
        if np.shape(weights) != (population_size,):
            raise EsoptError(f"weights have shape {np.shape(weights)}; the population has {population_size} members")
        words, coefficients = _draw_plan(_u32(seed), _u32(generation), _f32(weights), hashes, antithetic=antithetic)
        dither = _dither_words(_u32(seed), _u32(generation), hashes) if rounding == "stochastic" else None
        steps = _steps(_f32(alpha), factors, population_size)
        updated: Master = {}
        moments = []
        for group in group_leaves(master, specs, plan):
            leaves, moment = _update_group(
                tuple(master[specs[i].path] for i in group.indices),
                words,
                np.array(group.indices),
                coefficients,
                steps,
                dither,
                form=group.form,
                rank=rank if group.low_rank else 0,
            )
            updated |= {specs[i].path: leaf for i, leaf in zip(group.indices, leaves, strict=True)}
            moments.append(moment)
        return {spec.path: updated[spec.path] for spec in specs}, _stats(moments)

    return update


# --- what all leaves share --------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="antithetic")
def _draw_plan(
    seed: jax.Array, generation: jax.Array, weights: jax.Array, hashes: jax.Array, *, antithetic: bool
) -> tuple[jax.Array, jax.Array]:
    """Leaf words `[leaves, K, 2]` and coefficients `[K]` of the K draws: one a member, or one an antithetic pair."""
    coefficients = weights[0::2] - weights[1::2] if antithetic else weights
    draws = jnp.arange(coefficients.shape[0], dtype=jnp.uint32)
    keys = jax.vmap(lambda draw: noise_key(seed, generation, draw))(draws)
    return leaf_words(keys, hashes), coefficients


@jax.jit
def _dither_words(seed: jax.Array, generation: jax.Array, hashes: jax.Array) -> jax.Array:
    """`[leaves, 2]` words of the random bits of stochastic rounding."""
    return leaf_words(noise_key(seed, generation, 0, purpose=Purpose.ROUNDING)[None], hashes)[:, 0]


@partial(jax.jit, static_argnames="population_size")
def _steps(alpha: jax.Array, multipliers: jax.Array, population_size: int) -> jax.Array:
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


# --- one group of leaves ----------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("form", "rank"), donate_argnames="leaves")
def _update_group(
    leaves: tuple[MasterLeaf, ...],
    words: jax.Array,
    index: jax.Array,
    coefficients: jax.Array,
    steps: jax.Array,
    dither: jax.Array | None,
    *,
    form: tuple[int, int],
    rank: int,
) -> tuple[list[MasterLeaf], jax.Array]:
    """The updated leaves and their moments. `rank` 0 means full-rank noise.

    Both branches below exist for the buffers at their ends, which stand in for barriers that XLA:CPU drops. The first
    rounds the step before it is added (never one fused multiply-add), so that every master format moves by the same
    bits. The second lets all fields of the block be written in place, although each depends on the old value of all.
    """
    rows, columns = form
    height = block_rows(form)
    blocks = -(-rows // height)
    words, steps = words[index], steps[index]
    if rank:
        words, steps = factor_words(words), steps * np.float32(1 / math.sqrt(rank))
    live = jnp.any(coefficients != 0)
    fields = stack_fields(leaves, form)

    def body(step: jax.Array, carry: tuple[Fields, jax.Array]) -> tuple[Fields, jax.Array]:
        fields, moments = carry
        leaf, block = step // blocks, step % blocks
        row = jnp.minimum(block * height, rows - height)
        window = tuple(lax.dynamic_slice(field, (leaf, row, 0), (1, height, columns))[0] for field in fields)
        delta = lax.cond(
            live,
            lambda: steps[leaf] * combine(words[leaf], coefficients, row, height, form=form, rank=rank),
            lambda: zeros_like_draw((height, columns), jnp.float32, words),
        )
        seen = row + lax.broadcasted_iota(jnp.int32, (height, 1), 0) < block * height  # rows of the block before
        random = None
        if dither is not None:
            random = join_pairs(*word_pairs(dither[index[leaf]], row, height, columns), columns)
        window, new = lax.cond(
            live,
            lambda: _apply(window, jnp.where(seen, 0, delta), random),
            lambda: (window, jnp.zeros_like(moments)),
        )
        return tuple(
            lax.dynamic_update_slice(field, part[None], (leaf, row, 0))
            for field, part in zip(fields, window, strict=True)
        ), moments + new

    start = fields, zeros_like_draw((5,), jnp.float32, words)
    fields, moments = lax.fori_loop(0, len(leaves) * blocks, body, start)
    parts = zip(*(unstack(field, leaves) for field in fields), strict=True)
    return [leaf_of(part) for part in parts], moments


def _apply(window: Fields, delta: jax.Array, random: jax.Array | None) -> tuple[Fields, jax.Array]:
    """The block moved by `delta`, and the moments that `_stats` sums. A step of 0 keeps the bits, also of -0."""
    old = read_fields(window)
    written = write_fields(jnp.where(delta == 0, old, old + delta), window, random)
    applied = read_fields(written) - old
    should = delta != 0
    counts = [jnp.sum(x, dtype=jnp.int32).astype(jnp.float32) for x in (should, should & (applied != 0))]
    pairs = (delta, delta), (applied, applied), (delta, applied)
    products = [jnp.vdot(a, b, precision=lax.Precision.HIGHEST) for a, b in pairs]
    return written, jnp.stack(products + counts)


def _u32(x: jax.Array | int) -> jax.Array:
    return jnp.asarray(x, jnp.uint32)


def _f32(x: Any) -> jax.Array:
    return jnp.asarray(x, jnp.float32)
