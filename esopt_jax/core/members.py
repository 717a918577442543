"""The arrays of several members, for pooled and for large leaves. `core.perturb` puts them together.

Shapes: L leaves of a call, M members. `keys` are `[M]` typed keys of members, `scales` `[M]` float32 (sigma with sign),
`hashes` the uint32 identities of the leaves and `multipliers` their float32 factors on sigma.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.layout import block_rows, make_pool, pool_noise
from esopt_jax.core.noise import factor_words, leaf_words
from esopt_jax.core.normals import normal_rows, zeros_like_draw
from esopt_jax.core.placement import gathered, placed
from esopt_jax.core.rounding import (
    MasterLeaf,
    Split,
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
    pool, homes = make_pool(forms), [home_of(leaf) for leaf in leaves]
    leaves = gathered(leaves)
    base = jnp.concatenate([leaf_value(leaf).reshape(-1) for leaf in leaves])
    words, factors = leaf_words(keys, hashes).swapaxes(0, 1), jnp.asarray(multipliers)[pool.item]

    def one(each: tuple[jax.Array, jax.Array]) -> jax.Array:
        words, scale = each
        return base + (scale * factors) * pool_noise(words, pool, live=scale != 0)

    flat = lax.map(one, (words, scales))
    shapes = [(len(scales), *leaf_shape(leaf)) for leaf in leaves]
    parts = zip(pool.cut(flat), dtypes, shapes, strict=True)
    members = [from_bits(to_bits(part, dtype)).reshape(shape) for part, dtype, shape in parts]
    return placed(members, homes, lead=1)


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
    flat = lax.map(lambda each: pool_noise(each[0], pool, live=each[1] != 0), (words, scales))
    parts = [part.reshape(-1, *side) for part, side in zip(pool.cut(flat), sides, strict=True)]
    scale = jnp.asarray(multipliers)[:, None] * scales * np.float32(1 / math.sqrt(rank))
    left = (to_bits(scale[i, :, None, None] * parts[2 * i], dtype) for i, dtype in enumerate(dtypes))
    right = (to_bits(parts[2 * i + 1], dtype) for i, dtype in enumerate(dtypes))
    return [(from_bits(a), from_bits(b)) for a, b in zip(left, right, strict=True)]


@partial(jax.jit, static_argnames=("form", "dtype"))
def large_members(
    keys: Key, leaf: MasterLeaf, scales: jax.Array, hashes: Array, multipliers: Array, *, form: Form, dtype: Any
) -> jax.Array:
    """One large leaf (`hashes` and `multipliers` are scalars) plus full-rank noise, `[M, *shape]`, block by block.

    One flat loop over members and blocks: a loop in a loop would copy every member once more.
    """
    rows, columns = form
    home, leaf = home_of(leaf), gathered(leaf)
    members, height = len(scales), block_rows(form)
    blocks = -(-rows // height)
    words, scales = leaf_words(keys, hashes), scales * multipliers
    base = tuple(field.reshape(form) for field in fields_of(leaf))

    def body(step: jax.Array, out: jax.Array) -> jax.Array:
        member, block = step // blocks, step % blocks
        row = jnp.minimum(block * height, rows - height)  # the last block may overlap: the same values again
        window = tuple(lax.dynamic_slice(field, (row, 0), (height, columns)) for field in base)
        noise = normal_rows(words[member], row, height, columns, live=scales[member] != 0)
        value = to_bits(read_fields(window) + scales[member] * noise, dtype)
        return lax.dynamic_update_slice(out, value[None], (member, row, 0))

    bits = jnp.uint16 if dtype == jnp.bfloat16 else jnp.float32
    out = lax.fori_loop(0, members * blocks, body, zeros_like_draw((members, rows, columns), bits, words))
    return placed(from_bits(out).reshape(members, *leaf_shape(leaf)), home, lead=1)


def home_of(leaf: MasterLeaf) -> jax.Array:
    """The array of a leaf that tells its placement."""
    return leaf.hi if isinstance(leaf, Split) else leaf


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
    left, right = lax.map(one, (words, multipliers * scales * np.float32(1 / math.sqrt(rank))))
    return from_bits(left), from_bits(right)
