"""How leaves are handled: small ones pooled into one flat vector, large ones alone and in row blocks.

A program costs compile time per kernel, so a model of many small leaves draws the noise of all of them in one. A leaf
too large for that is handled alone, block by block; equal large leaves share a compiled program, since nothing about a
leaf but its form and storage is static. A leaf's bits do not depend on its company.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.normals import LANES, TILE, box_muller, threefry2x32, tile_count, zeros_like_draw
from esopt_jax.types import Plan, Specs

POOLED_LEAF = 1 << 16
"""Largest leaf that joins a pool, in elements."""

POOL_LIMIT = 1 << 20
"""Largest pool, in elements; later leaves are handled alone."""

BLOCK_VALUES = 1 << 19
"""Elements of a block of a large leaf: near enough to the caches, and far under the 256 MB that may be used."""

PRODUCT_BLOCK_VALUES = 1 << 22
"""The same for low-rank updates, whose blocks are matrix products and draw all right factors again each time."""


@dataclass(frozen=True)
class Layout:
    """Positions in the leaf table, each in exactly one tuple.

    Attributes:
        pooled: small leaves with full-rank noise.
        pooled_factors: small leaves with low-rank noise.
        large: the rest with full-rank noise.
        large_factors: the rest with low-rank noise.
    """

    pooled: tuple[int, ...]
    pooled_factors: tuple[int, ...]
    large: tuple[int, ...]
    large_factors: tuple[int, ...]


@lru_cache(maxsize=16)
def make_layout(specs: Specs, plan: Plan) -> Layout:
    """The layout of a leaf table; a function of the table and the plan alone."""
    found: dict[tuple[bool, bool], list[int]] = {(a, b): [] for a in (True, False) for b in (True, False)}
    room = POOL_LIMIT
    for index, spec in enumerate(specs):
        small = spec.size <= min(POOLED_LEAF, room)
        room -= spec.size if small else 0
        found[small, plan == "low_rank" and spec.is_matrix].append(index)
    found[True, True].sort(key=lambda index: specs[index].noise_form)  # equal forms together: one product for all
    return Layout(*(tuple(found[key]) for key in ((True, False), (True, True), (False, False), (False, True))))


def forms_of(specs: Specs, index: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Noise forms of the leaves at positions `index`."""
    return tuple(specs[i].noise_form for i in index)


def block_rows(form: tuple[int, int], values: int = BLOCK_VALUES) -> int:
    """Rows of a block of at most about `values` elements; the blocks of a leaf are of nearly equal size.

    Example:
        >>> block_rows((1000, 1024), values=262144)
        250
    """
    rows, columns = form
    blocks = -(-rows // max(1, values // columns))
    return -(-rows // blocks)


@dataclass(frozen=True)
class Pool:
    """Where each element of a flat vector of several noise forms comes from.

    Attributes:
        counter: `[n]` uint32, number of the element's pair in its form.
        second: `[n]` bool, whether it is the second normal of the pair.
        item: `[n]` int32, which form it belongs to.
        bounds: `len(forms) + 1` offsets.
    """

    counter: np.ndarray
    second: np.ndarray
    item: np.ndarray
    bounds: tuple[int, ...]

    def cut(self, flat: jax.Array) -> list[jax.Array]:
        """One array a form of what lies flat along the last axis: `[..., n]` -> `[..., rows * columns]`."""
        return [flat[..., a:b] for a, b in itertools.pairwise(self.bounds)]


@lru_cache(maxsize=16)
def make_pool(forms: tuple[tuple[int, int], ...]) -> Pool:
    """The pool of noise forms laid end to end, each row-major.

    Example:
        >>> pool = make_pool(((1, 2), (2, 1)))
        >>> pool.counter.tolist(), pool.item.tolist(), pool.bounds
        ([0, 1, 0, 128], [0, 0, 1, 1], (0, 2, 4))
    """
    counters, seconds = [], []
    for rows, columns in forms:
        row, column = np.indices((rows, columns), np.uint32)
        tile, lane = column // TILE, column % LANES
        counters.append(((row * np.uint32(tile_count(columns)) + tile) * np.uint32(LANES) + lane).ravel())
        seconds.append((column % TILE >= LANES).ravel())
    sizes = [rows * columns for rows, columns in forms]
    return Pool(
        counter=np.concatenate(counters),
        second=np.concatenate(seconds),
        item=np.repeat(np.arange(len(forms), dtype=np.int32), sizes),
        bounds=(0, *np.cumsum(sizes).tolist()),
    )


def pool_words(words: jax.Array, pool: Pool) -> tuple[jax.Array, jax.Array]:
    """Key of every element of a pool, two `[n]` uint32; `words` is `[forms, 2]`."""
    each = words[pool.item]
    return each[:, 0], each[:, 1]


def pool_noise(words: jax.Array, pool: Pool, *, live: jax.Array) -> jax.Array:
    """The normals of all forms of a pool: `[n]` float32; `words` is `[forms, 2]` uint32.

    Element by element: a pair whose both normals are wanted is computed twice, which small leaves can afford. Where
    `live` is False nothing is drawn and the result is 0; the branch also makes XLA gather the keys first: fused with
    the draw, the gather would keep the whole loop from being vectorised.
    """

    def draw(keys: tuple[jax.Array, jax.Array]) -> jax.Array:
        first, second = box_muller(*threefry2x32(keys, jnp.asarray(pool.counter)))
        return jnp.where(jnp.asarray(pool.second), second, first)

    def skip(keys: tuple[jax.Array, jax.Array]) -> jax.Array:
        return zeros_like_draw(pool.counter.shape, jnp.float32, keys[0])

    noise: jax.Array = lax.cond(live, draw, skip, pool_words(words, pool))
    return noise


def pool_bits(words: jax.Array, pool: Pool) -> jax.Array:
    """A random word for every element of a pool: `[n]` uint32; `words` is `[forms, 2]` uint32."""
    first, second = threefry2x32(pool_words(words, pool), jnp.asarray(pool.counter))
    return jnp.where(jnp.asarray(pool.second), second, first)
