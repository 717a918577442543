"""Qwen3.5's full attention: grouped queries, per-head norms, rope on part of a head, an output gate.

`segment` consumes a right-padded piece of every row, `step` one token of every row.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from esopt_jax.models.attention import Rotation, attend_segment, attend_token, per_head, rotate
from esopt_jax.models.cache import AttentionCache
from esopt_jax.models.ops import dense, rms_norm, sigmoid
from esopt_jax.models.qwen3_5_config import Qwen35
from esopt_jax.types import View


def frequencies(arch: Qwen35) -> jax.Array:
    """Rotary frequencies, `[R / 2]` float32: pair j of R rotated dims has `theta^(-2j / R)`."""
    return arch.rope_theta ** -(jnp.arange(0, arch.rotary_dim, 2, dtype=jnp.float32) / arch.rotary_dim)


def segment(
    w: View,
    x: jax.Array,
    cache: AttentionCache,
    turn: Rotation,
    start: jax.Array,
    lengths: jax.Array,
    *,
    arch: Qwen35,
) -> tuple[jax.Array, AttentionCache]:
    """The layer over a right-padded segment, continuing from `cache`.

    Args:
        w: leaves of this layer's `self_attn`.
        x: `[B, T, D]` normed input.
        cache: of capacity S.
        turn: rotation at the positions of the segment, `[B, T, R/2]`.
        start: `[B]` int32, tokens already in the cache.
        lengths: `[B]` int32, true tokens of the segment.
        arch: static.

    Returns:
        `[B, T, D]`, whose padded positions are garbage, and the next cache.
    """
    q, gate, k, v = (jnp.moveaxis(t, 1, -2) for t in _project(w, x))
    q, k = _turned(w, q, k, per_head(turn), arch)
    mixed, cache = attend_segment(q, k, v, cache, start, lengths)
    return dense(jnp.moveaxis(mixed * sigmoid(gate), -2, 1), w["o_proj.weight"], inputs=3), cache


def step(
    w: View,
    x: jax.Array,
    cache: AttentionCache,
    turn: Rotation,
    length: jax.Array,
    live: jax.Array,
    *,
    arch: Qwen35,
) -> tuple[jax.Array, AttentionCache]:
    """The layer for one new token per row, `x: [B, D]`, `turn` `[B, R/2]`; rows that are not `live` store nothing."""
    q, gate, k, v = _project(w, x)
    q, k = _turned(w, q, k, per_head(turn), arch)
    mixed, cache = attend_token(q, k, v, cache, length, live)
    return dense(mixed * sigmoid(gate), w["o_proj.weight"], inputs=3), cache


def _project(w: View, x: jax.Array) -> tuple[jax.Array, ...]:
    """Queries and gates `[..., Hkv, G, Dh]`, keys and values `[..., Hkv, Dh]`."""
    both = dense(x, w["q_proj.weight"])
    return both[..., 0, :], both[..., 1, :], dense(x, w["k_proj.weight"]), dense(x, w["v_proj.weight"])


def _turned(w: View, q: jax.Array, k: jax.Array, turn: Rotation, arch: Qwen35) -> tuple[jax.Array, jax.Array]:
    """Queries and keys after their norms and rope."""
    k = rotate(rms_norm(k, w["k_norm.weight"], eps=arch.rms_norm_eps), turn)
    return rotate(rms_norm(q, w["q_norm.weight"], eps=arch.rms_norm_eps), per_head(turn)), k
