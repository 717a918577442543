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
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.estimate import sum_pool, sum_window
from esopt_jax.core.layout import BLOCK_VALUES, PRODUCT_BLOCK_VALUES, block_rows, make_pool, pool_bits
from esopt_jax.core.noise import leaf_words
from esopt_jax.core.normals import cover, join_pairs, word_pairs, zeros_like_draw
from esopt_jax.core.placement import cut_of, gathered, on_windows, over, placed, summed, varying_with
from esopt_jax.core.pool_windows import PoolWindows
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
    windows, homes = PoolWindows.of(leaves, forms), leaves
    leaves = windows.gathered(leaves)
    random_words = None if dither is None else leaf_words(dither[None], hashes)[:, 0]

    def move(leaves: tuple[MasterLeaf, ...], *rest: Any) -> tuple[list[MasterLeaf], jax.Array]:
        words, coefficients, steps, random_words = rest
        pool = make_pool(forms)
        factors = windows.local((jnp.asarray(steps) * _normaliser(rank))[pool.item])
        delta = _materialised(
            jnp.any(coefficients != 0),
            lambda: factors * windows.local(sum_pool(words, coefficients, forms=forms, rank=rank)),
            windows.local(zeros_like_draw(pool.counter.shape, jnp.float32, words)),
        )
        old = jnp.concatenate([leaf_value(leaf).reshape(-1) for leaf in leaves])
        new = _move(old, delta)
        coarse = np.repeat([not isinstance(x, Split) and x.dtype == jnp.bfloat16 for x in leaves], windows.sizes)
        if coarse.any():
            random = None if random_words is None else windows.local(pool_bits(random_words, pool))
            like = (jnp.zeros((), jnp.uint16),)
            new = jnp.where(coarse, read_fields(write_fields(new, like, random)), new)
        parts = [part.reshape(leaf_shape(leaf)) for part, leaf in zip(windows.cut(new), leaves, strict=True)]
        updated = [leaf_of(write_fields(part, fields_of(leaf))) for part, leaf in zip(parts, leaves, strict=True)]
        return updated, windows.total(partial(_moments, delta, new - old))

    words = leaf_words(keys, hashes).swapaxes(0, 1)
    moved, moments = windows.run(move, lead=0, sums=True)(leaves, words, coefficients, steps, random_words)
    return placed(moved, list(homes)), moments


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
    words, factor = leaf_words(keys, hashes), jnp.asarray(steps) * _normaliser(rank)
    dither_words = None if dither is None else leaf_words(dither[None], hashes)[0]
    cut, rest = cut_of(leaf, form), (words, coefficients, factor, dither_words)
    if cut is None:
        home = leaf
        moved, moments = _update_window(gathered(leaf), *rest, form=form, window=form, corner=lambda: (0, 0), rank=rank)
        return placed(moved, home), moments

    def move(leaf: MasterLeaf, *rest: Any) -> tuple[MasterLeaf, jax.Array]:
        moved, moments = _update_window(leaf, *rest, form=form, window=cut.form, corner=cut.corner, rank=rank)
        return moved, summed(moments, cut.axis)

    whole = over()
    return on_windows(move, cut, ins=(cut.spec, *(whole for _ in rest)), outs=(cut.spec, whole))(leaf, *rest)


def _update_window(
    leaf: MasterLeaf,
    words: jax.Array,
    coefficients: jax.Array,
    factor: jax.Array,
    dither_words: jax.Array | None,
    *,
    form: Form,
    window: Form,
    corner: Callable[[], tuple[jax.Array | int, jax.Array | int]],
    rank: int,
) -> tuple[MasterLeaf, jax.Array]:
    """The window of a leaf that begins at `corner()` after one step, and its moments."""
    rows, width = window
    height = block_rows(window, PRODUCT_BLOCK_VALUES if rank else BLOCK_VALUES)
    first_row, first_column = corner()
    words = varying_with(words, first_row, first_column)
    live = jnp.any(coefficients != 0)

    def body(block: jax.Array, carry: tuple[Fields, jax.Array]) -> tuple[Fields, jax.Array]:
        fields, moments = carry
        row = jnp.minimum(block * height, rows - height)
        part = tuple(lax.dynamic_slice(field, (row, 0), (height, width)) for field in fields)
        at: dict[str, Any] = {"first_column": first_column, "width": width}
        delta = _materialised(
            live,
            lambda: factor * sum_window(words, coefficients, first_row + row, height, form=form, rank=rank, **at),
            zeros_like_draw((height, width), jnp.float32, words),
        )
        done = row + lax.broadcasted_iota(jnp.int32, (height, 1), 0) < block * height  # rows shared with the last block
        delta = jnp.where(done, 0, delta)
        random = None if dither_words is None else _bits(dither_words, first_row + row, height, form[1], **at)

        def write() -> tuple[Fields, jax.Array]:
            old = read_fields(part)
            written = write_fields(_move(old, delta), part, random)
            return written, _moments(delta, read_fields(written) - old)

        written, new = _materialised(live, write, (part, jnp.zeros_like(moments)))
        pairs = zip(fields, written, strict=True)
        return tuple(lax.dynamic_update_slice(field, part, (row, 0)) for field, part in pairs), moments + new

    start = tuple(field.reshape(window) for field in fields_of(leaf)), zeros_like_draw((5,), jnp.float32, words)
    fields, moments = lax.fori_loop(0, -(-rows // height), body, start)
    return leaf_of(tuple(field.reshape(leaf_shape(leaf)) for field in fields)), moments


def _bits(
    words: jax.Array, row: jax.Array, height: int, columns: int, *, first_column: jax.Array | int, width: int
) -> jax.Array:
    """Random words of a window of a form with so many columns, `[height, width]`."""
    tiles = cover(columns, first_column, width)
    first, second = word_pairs(words, row, height, columns, first_tile=tiles.first, tiles=tiles.count)
    return tiles.cut(join_pairs(first, second, tiles.columns))


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


def _moments(delta: jax.Array, applied: jax.Array, counted: Array | None = None) -> jax.Array:
    """The five sums over elements; over those only that are `counted`, where that is given."""
    if counted is not None:
        delta, applied = (jnp.where(counted, x, 0) for x in (delta, applied))
    pairs = (delta, delta), (applied, applied), (delta, applied)
    products = [jnp.vdot(a, b, precision=lax.Precision.HIGHEST) for a, b in pairs]
    should = delta != 0
    counts = [jnp.sum(x, dtype=jnp.int32).astype(jnp.float32) for x in (should, should & (applied != 0))]
    return jnp.stack(products + counts)


def _normaliser(rank: int) -> np.float32:
    return np.float32(1 / math.sqrt(rank) if rank else 1)
