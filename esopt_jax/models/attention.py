"""What attention layers share: rope, a cache of keys and values, and grouped queries that read it.

Heads stand in front of time here, so that every product is a batch of plain matrix products. Positions are per row, so
rows of different lengths share a batch without padding between their segments.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from esopt_jax.models.cache import AttentionCache

Rotation = tuple[jax.Array, jax.Array]
MASKED = -1e30  # finite: a fully masked row must give finite garbage, since NaN times a zero weight is NaN


def rotation(positions: jax.Array, frequencies: jax.Array) -> Rotation:
    """Cosines and sines of `positions: [...]`, each `[..., R / 2]` float32, where R dims of a head are rotated.

    Pair j turns by `frequencies[j]` a position.
    """
    angles = positions[..., None].astype(jnp.float32) * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, turn: Rotation) -> jax.Array:
    """Rotate the leading `2 * turn[0].shape[-1]` dims of the last axis, halves against each other; the rest passes.

    The angles are rounded to the type of `x` first, as the published models do.
    """
    cos, sin = (t.astype(x.dtype) for t in turn)
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def per_head(turn: Rotation) -> Rotation:
    """The same turn for every head: an axis of size 1 behind the rows."""
    cos, sin = turn
    return cos[:, None], sin[:, None]


def attend_segment(
    q: jax.Array, k: jax.Array, v: jax.Array, cache: AttentionCache, start: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, AttentionCache]:
    """Attention of a right-padded segment over itself and everything before it.

    Args:
        q: `[B, Hkv, G, T, Dh]`, rotated.
        k: `[B, Hkv, T, Dh]`, rotated.
        v: `[B, Hkv, T, Dh]`.
        cache: of capacity S.
        start: `[B]` int32, tokens already in the cache.
        lengths: `[B]` int32, true tokens of the segment; the rest is padding, which is neither stored nor seen.

    Returns:
        Mixed values shaped like `q`, and the cache with the segment in it. Tokens beyond the capacity are dropped,
        never wrapped.
    """
    steps = q.shape[-2]
    slot = jnp.arange(cache.k.shape[-1])
    source = slot - start[:, None]  # [B, S]: which token of the segment belongs in each slot
    written = ((source >= 0) & (source < lengths[:, None]))[:, None]
    source = jnp.clip(source, 0, steps - 1)[:, None, :, None]
    k, v = (jnp.take_along_axis(t, source, axis=2).astype(cache.v.dtype) for t in (k, v))
    cache = AttentionCache(
        k=jnp.where(written[:, :, None], k.swapaxes(2, 3), cache.k), v=jnp.where(written[..., None], v, cache.v)
    )
    visible = slot <= start[:, None, None] + jnp.arange(steps)[:, None]  # [B, T, S]
    return _attend(q, cache, visible[:, None, None]), cache


def attend_token(
    q: jax.Array, k: jax.Array, v: jax.Array, cache: AttentionCache, length: jax.Array, live: jax.Array
) -> tuple[jax.Array, AttentionCache]:
    """Attention of one new token per row.

    Args:
        q: `[B, Hkv, G, Dh]`, rotated.
        k: `[B, Hkv, Dh]`, rotated.
        v: `[B, Hkv, Dh]`.
        cache: of capacity S.
        length: `[B]` int32, tokens already in the cache.
        live: `[B]` bool; other rows store nothing.

    Returns:
        Mixed values shaped like `q`, and the next cache.
    """
    capacity = cache.k.shape[-1]
    row, slot = jnp.arange(q.shape[0]), jnp.where(live, length, capacity)  # a slot beyond the capacity is dropped
    cache = AttentionCache(
        k=cache.k.at[row, :, :, slot].set(k.astype(cache.k.dtype), mode="drop", unique_indices=True),
        v=cache.v.at[row, :, slot].set(v.astype(cache.v.dtype), mode="drop", unique_indices=True),
    )
    visible = jnp.arange(capacity) <= length[:, None]
    return _attend(q[..., None, :], cache, visible[:, None, None, None])[..., 0, :], cache


def _attend(q: jax.Array, cache: AttentionCache, visible: jax.Array) -> jax.Array:
    """Mix the cached values for queries `[B, Hkv, G, T, Dh]` that see the slots `visible: [B, 1, 1, T, S]`."""
    flat = q.reshape(*q.shape[:2], -1, q.shape[-1])  # the queries of a group read their keys together
    scores = jnp.matmul(flat, cache.k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    scores = scores.reshape(*q.shape[:-1], -1)
    weights = jax.nn.softmax(jnp.where(visible, scores, MASKED), axis=-1).astype(q.dtype)
    return jnp.matmul(weights.reshape(*flat.shape[:-1], -1), cache.v).reshape(q.shape)
