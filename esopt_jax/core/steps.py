"""One update step on stored weights: of the small leaves together, and of one large leaf block by block.

Shapes: L leaves of a call, K draws. `keys` are `[K]` typed keys, `coefficients` `[K]` float32, `hashes` the uint32
identities of the leaves and `steps` their float32 factors, alpha / N times the multiplier of the leaf.

Moments are `[5]` float32: squared lengths of the intended and the applied step, their product, and how many weights
should and did move.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.estimate import sum_pool, sum_window
from esopt_jax.core.layout import BLOCK_VALUES, PRODUCT_BLOCK_VALUES, block_rows, make_pool, pool_bits
from esopt_jax.core.noise import leaf_words
from esopt_jax.core.normals import join_pairs, word_pairs, zeros_like_draw
from esopt_jax.core.placement import gathered, placed
from esopt_jax.core.rounding import (
    Fields,
    MasterLeaf,
    Split,
    fields_of,
    leaf_of,
    leaf_shape,
    leaf_value,
    read_fields,
    write_fields,
)
from esopt_jax.types import Key

T = TypeVar("T")
Form = tuple[int, int]
Array = jax.Array | np.ndarray


@partial(jax.jit, static_argnames=("forms", "rank"), donate_argnames="leaves")
def update_pool(
    keys: Key,
    leaves: tuple[MasterLeaf, ...],
    coefficients: jax.Array,
    hashes: Array,
    steps: Array,
    dither: Key | None,
    *,
    forms: tuple[Form, ...],
    rank: int,
) -> tuple[list[MasterLeaf], jax.Array]:
    """The L leaves after one step, and the moments. `rank` 0 means full-rank noise, `dither` stochastic rounding."""
    pool, homes = make_pool(forms), leaves
    leaves = gathered(leaves)
    words = leaf_words(keys, hashes).swapaxes(0, 1)
    factors = (jnp.asarray(steps) * _normaliser(rank))[pool.item]
    delta = _materialised(
        jnp.any(coefficients != 0),
        lambda: factors * sum_pool(words, coefficients, forms=forms, rank=rank),
        zeros_like_draw(pool.counter.shape, jnp.float32, words),
    )
    old = jnp.concatenate([leaf_value(leaf).reshape(-1) for leaf in leaves])
    new = _move(old, delta)
    coarse = [not isinstance(leaf, Split) and leaf.dtype == jnp.bfloat16 for leaf in leaves]
    if any(coarse):
        random = None if dither is None else pool_bits(leaf_words(dither[None], hashes)[:, 0], pool)
        like = (jnp.zeros((), jnp.uint16),)
        new = jnp.where(np.array(coarse)[pool.item], read_fields(write_fields(new, like, random)), new)
    parts = [part.reshape(leaf_shape(leaf)) for part, leaf in zip(pool.cut(new), leaves, strict=True)]
    updated = [leaf_of(write_fields(part, fields_of(leaf))) for part, leaf in zip(parts, leaves, strict=True)]
    return placed(updated, list(homes)), _moments(delta, new - old)


@partial(jax.jit, static_argnames=("form", "rank"), donate_argnames="leaf")
def update_large(
    keys: Key,
    leaf: MasterLeaf,
    coefficients: jax.Array,
    hashes: Array,
    steps: Array,
    dither: Key | None,
    *,
    form: Form,
    rank: int,
) -> tuple[MasterLeaf, jax.Array]:
    """One leaf (`hashes` and `steps` are scalars) after one step, written in place, and the moments."""
    rows, columns = form
    height, home = block_rows(form, PRODUCT_BLOCK_VALUES if rank else BLOCK_VALUES), leaf
    leaf = gathered(leaf)
    words, factor = leaf_words(keys, hashes), jnp.asarray(steps) * _normaliser(rank)
    dither_words = None if dither is None else leaf_words(dither[None], hashes)[0]
    live = jnp.any(coefficients != 0)

    def body(block: jax.Array, carry: tuple[Fields, jax.Array]) -> tuple[Fields, jax.Array]:
        fields, moments = carry
        row = jnp.minimum(block * height, rows - height)
        window = tuple(lax.dynamic_slice(field, (row, 0), (height, columns)) for field in fields)
        delta = _materialised(
            live,
            lambda: factor * sum_window(words, coefficients, row, height, form=form, rank=rank),
            zeros_like_draw((height, columns), jnp.float32, words),
        )
        done = row + lax.broadcasted_iota(jnp.int32, (height, 1), 0) < block * height  # rows shared with the last block
        delta = jnp.where(done, 0, delta)
        random = None
        if dither_words is not None:
            first, second = word_pairs(dither_words, row, height, columns)
            random = join_pairs(first, second, columns)

        def write() -> tuple[Fields, jax.Array]:
            old = read_fields(window)
            written = write_fields(_move(old, delta), window, random)
            return written, _moments(delta, read_fields(written) - old)

        written, new = _materialised(live, write, (window, jnp.zeros_like(moments)))
        parts = zip(fields, written, strict=True)
        return tuple(lax.dynamic_update_slice(field, part, (row, 0)) for field, part in parts), moments + new

    start = tuple(field.reshape(form) for field in fields_of(leaf)), zeros_like_draw((5,), jnp.float32, words)
    fields, moments = lax.fori_loop(0, -(-rows // height), body, start)
    return placed(leaf_of(tuple(field.reshape(leaf_shape(leaf)) for field in fields)), home), moments


def _materialised(live: jax.Array, compute: Callable[[], T], otherwise: T) -> T:
    """`compute()` where `live`, written out to buffers of its own.

    The branch stands in for an optimisation barrier, which XLA:CPU drops. A step that is rounded before it is added
    (never one fused multiply-add) moves every master format by the same bits; and fields of a block that are complete
    before the first of them is stored can be stored in place.
    """
    result: T = lax.cond(live, compute, lambda: otherwise)
    return result


def _move(old: jax.Array, delta: jax.Array) -> jax.Array:
    """`old + delta`; a step of 0 keeps the bits, also those of -0."""
    return jnp.where(delta == 0, old, old + delta)


def _moments(delta: jax.Array, applied: jax.Array) -> jax.Array:
    pairs = (delta, delta), (applied, applied), (delta, applied)
    products = [jnp.vdot(a, b, precision=lax.Precision.HIGHEST) for a, b in pairs]
    should = delta != 0
    counts = [jnp.sum(x, dtype=jnp.int32).astype(jnp.float32) for x in (should, should & (applied != 0))]
    return jnp.stack(products + counts)


def _normaliser(rank: int) -> np.float32:
    return np.float32(1 / math.sqrt(rank) if rank else 1)
