"""The weighted sum of the population's noise over a window of one leaf, `sum_i c_i eps_i`, in bounded memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from esopt_jax.core.normals import (
    box_muller,
    join_packed,
    lane_count,
    normal_columns,
    normal_rows,
    pack_pairs,
    tile_count,
    word_pairs,
    zeros_like_draw,
)

FACTOR_VALUES = 1 << 22
"""Normals of low-rank factors held at a time."""


def combine(
    words: jax.Array,
    coefficients: jax.Array,
    row: jax.Array | int,
    height: int,
    *,
    form: tuple[int, int],
    rank: int,
) -> jax.Array:
    """Rows `row .. row + height` of `sum_i c_i eps_i`.

    Args:
        words: `[K, 2]` uint32 leaf keys of K draws, or `[K, 2 (left, right), 2]` for low-rank noise.
        coefficients: `[K]` float32.
        row: first row; may be traced.
        height: number of rows.
        form: `(rows, columns)` of the leaf's noise.
        rank: R, or 0 for full-rank noise. Low-rank sums lack their factor `1/sqrt(R)`.

    Returns:
        `[height, columns]` float32.

    Example:
        >>> words = jnp.array([[1, 2], [1, 2]], jnp.uint32)
        >>> total = combine(words, jnp.array([2.0, -2.0]), 0, 3, form=(3, 5), rank=0)
        >>> total.shape, float(abs(total).max())
        ((3, 5), 0.0)
    """
    if rank:
        return _low_rank(words, coefficients, row, height, form, rank)
    return _full_rank(words, coefficients, row, height, form[1])


def _full_rank(words: jax.Array, coefficients: jax.Array, row: jax.Array | int, height: int, columns: int) -> jax.Array:
    """One accumulator, members added in index order."""

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        first, second = box_muller(*word_pairs(words[i], row, height, columns))
        return total + pack_pairs(coefficients[i] * first, coefficients[i] * second, columns)

    shape = (height, tile_count(columns), lane_count(columns))
    start = zeros_like_draw(shape, jnp.float32 if columns <= lane_count(columns) else jnp.complex64, words)
    return join_packed(lax.fori_loop(0, words.shape[0], add, start), columns)


def _low_rank(
    words: jax.Array, coefficients: jax.Array, row: jax.Array | int, height: int, form: tuple[int, int], rank: int
) -> jax.Array:
    """One product of stacked factors, `[columns of all left factors]ᵀ [all right factors]`, or one a batch of members."""
    rows, columns = form
    batch = min(words.shape[0], max(1, FACTOR_VALUES // (rank * (height + columns))))
    batches = -(-words.shape[0] // batch)
    surplus = batches * batch - words.shape[0]
    words = jnp.pad(words, ((0, surplus), (0, 0), (0, 0))).reshape(batches, batch, 2, 2)
    coefficients = jnp.pad(coefficients, (0, surplus)).reshape(batches, batch)  # the surplus weighs nothing

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        left = jax.vmap(lambda word: normal_columns(word, rank, rows, row, height))(words[i, :, 0])
        right = jax.vmap(lambda word: normal_rows(word, 0, rank, columns))(words[i, :, 1])
        left = (left * coefficients[i, :, None, None]).reshape(batch * rank, height)
        product = jnp.matmul(left.T, right.reshape(batch * rank, columns), precision=lax.Precision.HIGHEST)
        return total + product

    return lax.fori_loop(0, batches, add, zeros_like_draw((height, columns), jnp.float32, words))
