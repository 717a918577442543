"""The weighted sum of the population's noise, `sum_i c_i eps_i`, in bounded memory: of a window of a leaf or of a pool.

Full-rank noise has one accumulator, to which members are added in index order. Low-rank noise is one product of stacked
factors, `[all left factors]ᵀ [all right factors]`, or one a batch of members where those would not fit.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.layout import Pool, make_pool, pool_noise
from esopt_jax.core.noise import factor_words
from esopt_jax.core.normals import (
    LANES,
    box_muller,
    cover,
    join_packed,
    lane_count,
    normal_rows,
    pack_pairs,
    word_pairs,
    zeros_like_draw,
)

FACTOR_VALUES = 1 << 22
"""Normals of low-rank factors held at a time."""


def sum_window(
    words: jax.Array,
    coefficients: jax.Array,
    row: jax.Array | int,
    height: int,
    *,
    form: tuple[int, int],
    rank: int,
    first_column: jax.Array | int = 0,
    width: int | None = None,
) -> jax.Array:
    """Rows `row .. row + height` of `sum_i c_i eps_i` of one leaf: all columns, or `width` from `first_column` on.

    Args:
        words: `[K, 2]` uint32 leaf keys of K draws.
        coefficients: `[K]` float32.
        row: first row; may be traced.
        height: number of rows.
        form: `(rows, columns)` of the leaf's noise.
        rank: R, or 0 for full-rank noise. Low-rank sums lack their factor `1/sqrt(R)`.
        first_column: first column; may be traced.
        width: number of columns; None means all.

    Returns:
        `[height, width]` float32.

    Example:
        >>> words = jnp.array([[1, 2], [1, 2]], jnp.uint32)
        >>> total = sum_window(words, jnp.array([2.0, -2.0]), 0, 3, form=(3, 5), rank=0)
        >>> total.shape, float(abs(total).max())
        ((3, 5), 0.0)
    """
    rows, columns = form
    tiles = cover(columns, first_column, width)
    if not rank:

        def add(i: jax.Array, total: jax.Array) -> jax.Array:
            pairs = word_pairs(words[i], row, height, columns, first_tile=tiles.first, tiles=tiles.count)
            first, second = box_muller(*pairs)
            return total + pack_pairs(coefficients[i] * first, coefficients[i] * second, columns)

        shape = (height, tiles.count, lane_count(columns))
        start = zeros_like_draw(shape, jnp.float32 if columns <= LANES else jnp.complex64, words)
        return tiles.cut(join_packed(lax.fori_loop(0, words.shape[0], add, start), tiles.columns))

    batches, weights = _batches(factor_words(words), coefficients, rank * (height + tiles.width))

    def add_batch(i: jax.Array, total: jax.Array) -> jax.Array:
        def draw_left(word: jax.Array) -> jax.Array:
            drawn: jax.Array = normal_rows(word, 0, rank, rows, first_column=row, width=height)
            return drawn

        def draw_right(word: jax.Array) -> jax.Array:
            drawn: jax.Array = normal_rows(word, 0, rank, columns, first_column=first_column, width=width)
            return drawn

        left, right = jax.vmap(draw_left)(batches[i, :, 0]), jax.vmap(draw_right)(batches[i, :, 1])
        return total + _product(left[:, None], right[:, None], weights[i])[0]

    start = zeros_like_draw((height, tiles.width), jnp.float32, words)
    total: jax.Array = lax.fori_loop(0, batches.shape[0], add_batch, start)
    return total


def sum_pool(words: jax.Array, coefficients: jax.Array, *, forms: tuple[tuple[int, int], ...], rank: int) -> jax.Array:
    """`sum_i c_i eps_i` of small leaves, flat in the order of `forms`: `[n]` float32.

    Args:
        words: `[K, L, 2]` uint32 leaf keys of K draws.
        coefficients: `[K]` float32.
        forms: `(rows, columns)` of the L leaves' noise.
        rank: R, or 0 for full-rank noise. Low-rank sums lack their factor `1/sqrt(R)`.
    """
    if not rank:
        pool = make_pool(forms)

        def add(i: jax.Array, total: jax.Array) -> jax.Array:
            return total + coefficients[i] * pool_noise(words[i], pool, live=coefficients[i] != 0)

        start = zeros_like_draw(pool.counter.shape, jnp.float32, words)
        flat: jax.Array = lax.fori_loop(0, words.shape[0], add, start)
        return flat

    sides, order, runs = _factor_pool(forms, rank)
    batches, weights = _batches(factor_words(words), coefficients, sides.bounds[-1])

    def add_batch(i: jax.Array, totals: list[jax.Array]) -> list[jax.Array]:
        def draw(each: tuple[jax.Array, jax.Array]) -> jax.Array:
            words, weight = each
            return pool_noise(words.reshape(-1, 2)[order], sides, live=weight != 0)

        parts = sides.cut(lax.map(draw, (batches[i], weights[i])))
        shaped = [part.reshape(-1, *run) for part, run in zip(parts, runs, strict=True)]
        pairs = zip(shaped[::2], shaped[1::2], strict=True)
        return [total + _product(*pair, weights[i]) for total, pair in zip(totals, pairs, strict=True)]

    starts = [(left[0], left[2], right[2]) for left, right in zip(runs[::2], runs[1::2], strict=True)]
    totals = [zeros_like_draw(shape, jnp.float32, words) for shape in starts]
    totals = lax.fori_loop(0, len(batches), add_batch, totals)
    return jnp.concatenate([total.reshape(-1) for total in totals])


@lru_cache(maxsize=16)
def _factor_pool(
    forms: tuple[tuple[int, int], ...], rank: int
) -> tuple[Pool, np.ndarray, tuple[tuple[int, int, int], ...]]:
    """A pool of factors in which runs of equal forms lie together, so that a run is one batched product.

    Returns:
        the pool, cut into left and right factors of each run; the position of each of its forms among `(leaf, side)`;
        and the shapes `(leaves, R, size)` of the cuts.
    """
    order: list[int] = []
    runs: list[tuple[int, int, int]] = []
    first = 0
    for form, run in itertools.groupby(forms):
        leaves = range(first, first := first + len(list(run)))
        for side, size in enumerate(form):
            order += [2 * leaf + side for leaf in leaves]
            runs.append((len(leaves), rank, size))
    pool = make_pool(tuple((rank, size) for leaves, _, size in runs for _ in range(leaves)))
    bounds = np.cumsum([0] + [leaves * rank * size for leaves, _, size in runs])
    return dataclasses.replace(pool, bounds=tuple(bounds.tolist())), np.array(order), tuple(runs)


def _batches(words: jax.Array, coefficients: jax.Array, values: int) -> tuple[jax.Array, jax.Array]:
    """Words and coefficients in batches `[batches, b, ...]` whose factors, `values` a member, fit; surplus weighs 0."""
    size = min(len(words), max(1, FACTOR_VALUES // values))
    surplus = -len(words) % size
    words = jnp.pad(words, ((0, surplus),) + ((0, 0),) * (words.ndim - 1))
    return words.reshape(-1, size, *words.shape[1:]), jnp.pad(coefficients, (0, surplus)).reshape(-1, size)


def _product(left: jax.Array, right: jax.Array, weights: jax.Array) -> jax.Array:
    """`sum_i w_i left_iᵀ right_i` over factors `[b, L, R, rows]` and `[b, L, R, columns]`, as one product a leaf."""
    left = left * weights[:, None, None, None]
    return jnp.einsum("blra,blrc->lac", left, right, precision=lax.Precision.HIGHEST)
