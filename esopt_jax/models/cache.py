"""What a sequence remembers between segments: one entry per layer, nothing stacked.

A stacked buffer would be sliced and rewritten at every step; a tuple of per-layer arrays is updated in place.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from flax import struct

from esopt_jax.models.architecture import Architecture
from esopt_jax.models.qwen3_5_config import Qwen35
from esopt_jax.models.sharding import zeros


@struct.dataclass
class AttentionCache:
    """Keys after norm and rope, `k: [B, Hkv, Dh, S]`, and raw values, `v: [B, Hkv, S, Dh]`.

    The two orders make both products of a decode step read memory in order.
    """

    k: jax.Array
    v: jax.Array


@struct.dataclass
class DeltaNetCache:
    """The last `K - 1` inputs of the convolution and the recurrent state.

    `q, k: [B, K-1, Hk, Dk]`, `v: [B, K-1, Hv, Dv]` in the compute type; `state: [B, Hk, Dk, G * Dv]` float32, where
    G = Hv / Hk value heads share a key head.
    """

    q: jax.Array
    k: jax.Array
    v: jax.Array
    state: jax.Array


@struct.dataclass
class Cache:
    """Tokens seen by each row, `length: [B]` int32, and the layers' memories."""

    length: jax.Array
    layers: tuple[AttentionCache | DeltaNetCache, ...]


def empty_cache(rows: int, layers: Iterable[AttentionCache | DeltaNetCache]) -> Cache:
    """A cache of `rows` sequences without tokens, from the empty memories of its layers."""
    return Cache(length=zeros((rows,), (None,), jnp.int32), layers=tuple(layers))


def reset_rows(cache: Cache, mask: jax.Array) -> Cache:
    """The cache with the rows of `mask: [B]` bool empty again.

    Keys and values stay: no position at or beyond `length` is ever read.
    """

    def empty(x: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(-1, *(1,) * (x.ndim - 1)), jnp.zeros_like(x), x)

    layers = tuple(jax.tree.map(empty, c) if isinstance(c, DeltaNetCache) else c for c in cache.layers)
    return Cache(length=empty(cache.length), layers=layers)


def attention_cache(a: Architecture, rows: int, capacity: int, dtype: jnp.dtype) -> AttentionCache:
    """The empty memory of an attention layer, for `rows` sequences of at most `capacity` tokens."""
    heads = (rows, a.num_key_value_heads)
    axes = (None, "kv_heads", None, None)
    return AttentionCache(
        k=zeros((*heads, a.head_dim, capacity), axes, dtype), v=zeros((*heads, capacity, a.head_dim), axes, dtype)
    )


def delta_net_cache(a: Qwen35, rows: int, dtype: jnp.dtype) -> DeltaNetCache:
    """The empty memory of a DeltaNet layer, which has the same size whatever the length."""
    keys = (rows, a.linear_conv_kernel_dim - 1, a.linear_num_key_heads, a.linear_key_head_dim)
    values = (rows, a.linear_conv_kernel_dim - 1, a.linear_num_value_heads, a.linear_value_head_dim)
    state = (rows, a.linear_num_key_heads, a.linear_key_head_dim, a.value_groups * a.linear_value_head_dim)
    return DeltaNetCache(
        q=zeros(keys, (None, None, "key_heads", None), dtype),
        k=zeros(keys, (None, None, "key_heads", None), dtype),
        v=zeros(values, (None, None, "value_heads", None), dtype),
        state=zeros(state, (None, "key_heads", None, None), jnp.float32),
    )
