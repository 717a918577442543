"""The arrays of several members, for pooled and for large leaves. `core.perturb` puts them together.

Shapes: L leaves of a call, M members. `keys` are `[M]` typed keys of members, `scales` `[M]` float32 (sigma with sign),
`hashes` the uint32 identities of the leaves and `multipliers` their float32 factors on sigma. Of a leaf that is cut
over a mesh axis (`placement`) every device makes its own window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.layout import block_rows, make_pool, pool_noise
from esopt_jax.core.noise import factor_words, leaf_words
from esopt_jax.core.normals import normal_rows, zeros_like_draw
from esopt_jax.core.placement import behind, cut_of, gathered, home_of, on_windows, over, placed, varying_with
from esopt_jax.core.pool_windows import PoolWindows
from esopt_jax.core.rounding import (
    MasterLeaf,
    fields_of,
    from_bits,
    leaf_shape,
    leaf_value,
    read_fields,
    to_bits,
)
from esopt_jax.types import Key

Form = tuple[int, int]
Array = jax.Array | np.ndarray


@partial(jax.jit, static_argnames=("forms", "dtypes"))
def pooled_members(
    keys: Key,
    leaves: tuple[MasterLeaf, ...],
    scales: jax.Array,
    hashes: Array,
    multipliers: Array,
    *,
    forms: tuple[Form, ...],
    dtypes: tuple[Any, ...],
) -> list[jax.Array]:
    """Small leaves plus full-rank noise: L arrays `[M, *shape]` of the given `dtypes`."""
    homes = [home_of(leaf) for leaf in leaves]
    windows = PoolWindows.of(leaves, forms)
    leaves = windows.gathered(leaves)

    def make(leaves: tuple[MasterLeaf, ...], keys: Key, scales: jax.Array) -> list[jax.Array]:
        pool = make_pool(forms)
        base = jnp.concatenate([leaf_value(leaf).reshape(-1) for leaf in leaves])
        words, factors = leaf_words(keys, hashes).swapaxes(0, 1), windows.local(jnp.asarray(multipliers)[pool.item])

        def one(each: tuple[jax.Array, jax.Array]) -> list[jax.Array]:
            words, scale = each
            flat = base + (scale * factors) * windows.local(pool_noise(words, pool, live=scale != 0))
            return [to_bits(part, dtype) for part, dtype in zip(windows.cut(flat), dtypes, strict=True)]

        parts = zip(lax.map(one, (words, scales)), leaves, strict=True)
        return [from_bits(part).reshape(-1, *leaf_shape(leaf)) for part, leaf in parts]

    return placed(windows.run(make, lead=1)(leaves, keys, scales), homes, lead=1)


@partial(jax.jit, static_argnames=("forms", "rank", "dtypes"))
def pooled_factors(
    keys: Key,
    scales: jax.Array,
    hashes: Array,
    multipliers: Array,
    *,
    forms: tuple[Form, ...],
    rank: int,
    dtypes: tuple[Any, ...],
) -> list[tuple[jax.Array, jax.Array]]:
    """Factors of small leaves: L pairs, left `[M, R, rows]` scaled and right `[M, R, columns]`."""
    sides = tuple((rank, size) for form in forms for size in form)
    pool = make_pool(sides)
    words = factor_words(leaf_words(keys, hashes)).swapaxes(0, 1).reshape(len(scales), len(sides), 2)
    factors = jnp.asarray(multipliers) * np.float32(1 / math.sqrt(rank))

    def one(each: tuple[jax.Array, jax.Array]) -> list[tuple[jax.Array, jax.Array]]:
        words, scale = each
        parts = pool.cut(pool_noise(words, pool, live=scale != 0))
        pairs = zip(parts[::2], parts[1::2], scale * factors, dtypes, strict=True)
        return [(to_bits(weight * left, dtype), to_bits(right, dtype)) for left, right, weight, dtype in pairs]

    found = lax.map(one, (words, scales))
    return [(_factor(left, rank), _factor(right, rank)) for left, right in found]


@partial(jax.jit, static_argnames=("form", "dtype"))
def large_members(
    keys: Key, leaf: MasterLeaf, scales: jax.Array, hashes: Array, multipliers: Array, *, form: Form, dtype: Any
) -> jax.Array:
    """One large leaf (`hashes` and `multipliers` are scalars) plus full-rank noise, `[M, *shape]`, block by block."""
    words, scales = leaf_words(keys, hashes), scales * multipliers
    cut = cut_of(leaf, form)
    if cut is None:
        home = home_of(leaf)
        made = _large_window(gathered(leaf), words, scales, form=form, window=form, corner=lambda: (0, 0), dtype=dtype)
        return placed(made, home, lead=1)
    make = partial(_large_window, form=form, window=cut.form, corner=cut.corner, dtype=dtype)
    whole = over()
    return on_windows(make, cut, ins=(cut.spec, whole, whole), outs=behind(cut.spec))(leaf, words, scales)


def _large_window(
    leaf: MasterLeaf,
    words: jax.Array,
    scales: jax.Array,
    *,
    form: Form,
    window: Form,
    corner: Callable[[], tuple[jax.Array | int, jax.Array | int]],
    dtype: Any,
) -> jax.Array:
    """The members' arrays of a window that begins at `corner()`, `[M, *shape of the window]`.

    One flat loop over members and blocks: a loop in a loop would copy every member once more. Scratch is a block; for
    bfloat16 also the bits of this one leaf's members until they are given their type.
    """
    rows, width = window
    first_row, first_column = corner()
    words = varying_with(words, first_row, first_column)
    members, height = len(scales), block_rows(window)
    blocks = -(-rows // height)
    base = tuple(field.reshape(window) for field in fields_of(leaf))

    def body(step: jax.Array, out: jax.Array) -> jax.Array:
        member, block = step // blocks, step % blocks
        row = jnp.minimum(block * height, rows - height)  # the last block may overlap: the same values again
        part = tuple(lax.dynamic_slice(field, (row, 0), (height, width)) for field in base)
        noise = normal_rows(
            words[member],
            first_row + row,
            height,
            form[1],
            first_column=first_column,
            width=width,
            live=scales[member] != 0,
        )
        value = to_bits(read_fields(part) + scales[member] * noise, dtype)
        return lax.dynamic_update_slice(out, value[None], (member, row, 0))

    bits = jnp.uint16 if dtype == jnp.bfloat16 else jnp.float32
    start = zeros_like_draw((members, rows, width), bits, words)
    out = lax.fori_loop(0, members * blocks, body, start)
    return from_bits(out).reshape(members, *leaf_shape(leaf))


@partial(jax.jit, static_argnames=("form", "rank", "dtype"))
def large_factors(
    keys: Key, scales: jax.Array, hashes: Array, multipliers: Array, *, form: Form, rank: int, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """Factors of one large leaf, drawn member by member: left `[M, R, rows]` scaled, right `[M, R, columns]`."""

    def one(each: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        words, scale = each
        left, right = (normal_rows(words[i], 0, rank, size, live=scale != 0) for i, size in enumerate(form))
        return to_bits(scale * left, dtype), to_bits(right, dtype)

    words = factor_words(leaf_words(keys, hashes))
    factor = jnp.asarray(multipliers) * np.float32(1 / math.sqrt(rank))
    left, right = lax.map(one, (words, scales * factor))
    return from_bits(left), from_bits(right)


def _factor(bits: jax.Array, rank: int) -> jax.Array:
    return from_bits(bits).reshape(len(bits), rank, -1)
