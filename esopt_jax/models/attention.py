"""Gated full attention: grouped queries, per-head norms, partial rope, an output gate, and its cache.

`segment` consumes a right-padded piece of every row, `step` one token of every row. Positions are per row, so rows of
different lengths share a batch without padding between their segments.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from esopt_jax.models.architecture import Architecture
from esopt_jax.models.cache import AttentionCache
from esopt_jax.models.ops import dense, rms_norm, sigmoid
from esopt_jax.types import View

Rotation = tuple[jax.Array, jax.Array]
MASKED = -1e30  # finite: a fully masked row must give finite garbage, since NaN times a zero weight is NaN


def rotation(positions: jax.Array, *, arch: Architecture) -> Rotation:
    """Cosines and sines of `positions: [...]`, each `[..., R / 2]` float32, where R dims of a head are rotated.

    Pair j turns by `theta^(-2j / R)` a position.
    """
    exponents = jnp.arange(0, arch.rotary_dim, 2, dtype=jnp.float32) / arch.rotary_dim
    angles = positions[..., None].astype(jnp.float32) * arch.rope_theta**-exponents
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, turn: Rotation) -> jax.Array:
    """Rotate the leading `2 * turn[0].shape[-1]` dims of the last axis, halves against each other; the rest passes.

    The angles are rounded to the type of `x` first, as the published model does.
    """
    cos, sin = (t.astype(x.dtype) for t in turn)
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def segment(
    w: View,
    x: jax.Array,
    cache: AttentionCache,
    turn: Rotation,
    start: jax.Array,
    lengths: jax.Array,
    *,
    arch: Architecture,
) -> tuple[jax.Array, AttentionCache]:
    """Attention over a right-padded segment and everything before it.

    Args:
        w: leaves of this layer's `self_attn`.
        x: `[B, T, D]` normed input.
        cache: of capacity S.
        turn: rotation at the positions of the segment, `[B, T, R/2]`.
        start: `[B]` int32, tokens already in the cache.
        lengths: `[B]` int32, true tokens of the segment; the rest is padding, which is neither stored nor seen.
        arch: static.

    Returns:
        `[B, T, D]` and the cache with the segment in it. Tokens beyond the capacity are dropped, never wrapped.
    """
    steps = x.shape[1]
    # Heads move in front of time first, so that every product below is a batch of plain matrix products.
    q, gate, k, v = (jnp.moveaxis(t, 1, -2) for t in _project(w, x))
    turn = tuple(t[:, None] for t in turn)
    k, q = (
        _turned(k, w["k_norm.weight"], turn, arch),
        _turned(q, w["q_norm.weight"], tuple(t[:, None] for t in turn), arch),
    )
    slot = jnp.arange(cache.k.shape[-1])
    source = slot - start[:, None]  # [B, S]: which token of the segment belongs in each slot
    written = ((source >= 0) & (source < lengths[:, None]))[:, None]
    source = jnp.clip(source, 0, steps - 1)[:, None, :, None]
    k, v = (jnp.take_along_axis(t, source, axis=2).astype(cache.v.dtype) for t in (k, v))
    cache = AttentionCache(
        k=jnp.where(written[:, :, None], k.swapaxes(2, 3), cache.k), v=jnp.where(written[..., None], v, cache.v)
    )
    visible = slot <= start[:, None, None] + jnp.arange(steps)[:, None]  # [B, T, S]
    mixed = _attend(q, cache, visible[:, None, None], arch)
    return dense(jnp.moveaxis(mixed * sigmoid(gate), -2, 1), w["o_proj.weight"], inputs=3), cache


def step(
    w: View,
    x: jax.Array,
    cache: AttentionCache,
    turn: Rotation,
    length: jax.Array,
    live: jax.Array,
    *,
    arch: Architecture,
) -> tuple[jax.Array, AttentionCache]:
    """Attention of one new token per row, `x: [B, D]`, `turn` `[B, R/2]`; rows that are not `live` store nothing."""
    q, gate, k, v = _project(w, x)
    turn = tuple(t[:, None] for t in turn)
    k, q = (
        _turned(k, w["k_norm.weight"], turn, arch),
        _turned(q, w["q_norm.weight"], tuple(t[:, None] for t in turn), arch),
    )
    capacity = cache.k.shape[-1]
    row, slot = jnp.arange(x.shape[0]), jnp.where(live, length, capacity)  # a slot beyond the capacity is dropped
    cache = AttentionCache(
        k=cache.k.at[row, :, :, slot].set(k.astype(cache.k.dtype), mode="drop", unique_indices=True),
        v=cache.v.at[row, :, slot].set(v.astype(cache.v.dtype), mode="drop", unique_indices=True),
    )
    visible = jnp.arange(capacity) <= length[:, None]
    mixed = _attend(q[..., None, :], cache, visible[:, None, None, None], arch)[..., 0, :]
    return dense(mixed * sigmoid(gate), w["o_proj.weight"], inputs=3), cache


def _project(w: View, x: jax.Array) -> tuple[jax.Array, ...]:
    """Queries and gates `[..., Hkv, G, Dh]`, keys and values `[..., Hkv, Dh]`."""
    both = dense(x, w["q_proj.weight"])
    return both[..., 0, :], both[..., 1, :], dense(x, w["k_proj.weight"]), dense(x, w["v_proj.weight"])


def _turned(x: jax.Array, gain: jax.Array, turn: Rotation, arch: Architecture) -> jax.Array:
    return rotate(rms_norm(x, gain, eps=arch.rms_norm_eps), turn)


def _attend(q: jax.Array, cache: AttentionCache, visible: jax.Array, arch: Architecture) -> jax.Array:
    """Mix the cached values for queries `[B, Hkv, G, T, Dh]` that see the slots `visible: [B, 1, 1, T, S]`."""
    flat = q.reshape(*q.shape[:2], -1, q.shape[-1])  # the queries of a group read their keys together
    scores = jnp.matmul(flat, cache.k, preferred_element_type=jnp.float32) * arch.head_dim**-0.5
    scores = scores.reshape(*q.shape[:-1], -1)
    weights = jax.nn.softmax(jnp.where(visible, scores, MASKED), axis=-1).astype(q.dtype)
    return jnp.matmul(weights.reshape(*flat.shape[:-1], -1), cache.v).reshape(q.shape)
