"""A Gated DeltaNet layer: projections, a short causal convolution, the delta rule, a gated norm.

`segment` consumes a right-padded piece of every row, `step` one token of every row. Padding is made exact rather than
masked afterwards: padded inputs are zero, their gates leave the state alone, and the convolution keeps the columns that
end at each row's true length.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from esopt_jax.models import delta_rule
from esopt_jax.models.cache import DeltaNetCache
from esopt_jax.models.ops import dense, sigmoid, silu
from esopt_jax.models.qwen3_5_config import Qwen35
from esopt_jax.types import View

PARTS = ("q", "k", "v")


def chunk_for(tokens: int, key_width: int) -> int:
    """Tokens per chunk of the delta rule, 8 .. 64.

    Per token a chunk of C costs about C inside and `key_width` against the state, so C follows the width.
    """
    return min(max(8, min(64, key_width // 2)), tokens)


def segment(
    w: View, x: jax.Array, cache: DeltaNetCache, lengths: jax.Array, *, arch: Qwen35, chunk: int | None = None
) -> tuple[jax.Array, DeltaNetCache]:
    """The layer over a right-padded segment, continuing from `cache`.

    Args:
        w: leaves of this layer's `linear_attn`.
        x: `[B, T, D]` normed input.
        cache: memory of the tokens before.
        lengths: `[B]` int32, true tokens of the segment; a row of length 0 keeps its cache.
        arch: static.
        chunk: tokens per chunk of the delta rule; by default chosen from the shapes.

    Returns:
        `[B, T, D]`, whose padded positions are garbage, and the next cache.
    """
    steps = x.shape[1]
    valid = jnp.arange(steps) < lengths[:, None]  # [B, T]
    x = jnp.where(valid[..., None], x, 0)
    columns, mixed = {}, {}
    for part in PARTS:
        inputs = dense(x, w[f"in_proj_qkv.weight#{part}"])
        window = jnp.concatenate([getattr(cache, part), inputs], axis=1)  # [B, K-1+T, H, d]
        taps = w[f"conv1d.weight#{part}"]
        # Heads move in front of time here, so that the norms and the delta rule read memory in order.
        mixed[part] = silu(sum(window[:, i : i + steps] * taps[i] for i in range(taps.shape[0]))).swapaxes(1, 2)
        columns[part] = _columns_before(window, lengths, taps.shape[0] - 1)
    q, k = _unit(mixed["q"], arch.linear_key_head_dim), _unit(mixed["k"], 1)
    v = _grouped(mixed["v"].astype(jnp.float32), arch, axis=1)
    g, beta = (_grouped(jnp.where(valid[..., None], t, 0.0).swapaxes(1, 2), arch, axis=1) for t in _gates(w, x))
    chunk = chunk or chunk_for(steps, arch.linear_key_head_dim)
    out, state = delta_rule.scan_chunks(q, k, v, g, beta, cache.state, chunk=chunk)
    out = out.reshape(mixed["v"].shape).swapaxes(1, 2)
    return _gated_output(w, x, out, arch), DeltaNetCache(**columns, state=state)


def step(
    w: View, x: jax.Array, cache: DeltaNetCache, live: jax.Array, *, arch: Qwen35
) -> tuple[jax.Array, DeltaNetCache]:
    """The layer for one new token per row, `x: [B, D]`; rows that are not `live` keep their cache."""
    columns, mixed = {}, {}
    for part in PARTS:
        inputs = dense(x, w[f"in_proj_qkv.weight#{part}"])
        old, taps = getattr(cache, part), w[f"conv1d.weight#{part}"]
        newest = taps.shape[0] - 1
        mixed[part] = silu(sum(old[:, i] * taps[i] for i in range(newest)) + inputs * taps[newest])
        shifted = jnp.concatenate([old[:, 1:], inputs[:, None]], axis=1)
        columns[part] = jnp.where(live[:, None, None, None], shifted, old)
    q, k = _unit(mixed["q"], arch.linear_key_head_dim), _unit(mixed["k"], 1)
    v = _grouped(mixed["v"].astype(jnp.float32), arch, axis=1)
    g, beta = (_grouped(jnp.where(live[:, None], t, 0.0), arch, axis=1) for t in _gates(w, x))
    out, state = delta_rule.step(q, k, v, g, beta, cache.state)
    return _gated_output(w, x, out.reshape(mixed["v"].shape), arch), DeltaNetCache(**columns, state=state)


def _columns_before(window: jax.Array, lengths: jax.Array, count: int) -> jax.Array:
    """The `count` columns that end at each row's true length: `window[b, lengths[b] : lengths[b] + count]`."""
    index = lengths[:, None] + jnp.arange(count)
    return jnp.take_along_axis(window, index[..., None, None], axis=1, mode="clip")


def _unit(x: jax.Array, divisor: int) -> jax.Array:
    """Last axis to length `divisor^-0.5`, in float32."""
    x = x.astype(jnp.float32)
    return x * lax.rsqrt((jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6) * divisor)


def _grouped(x: jax.Array, arch: Qwen35, *, axis: int) -> jax.Array:
    """Split the axis of value heads into key heads and their group: value head j reads key head `j // G`."""
    return x.reshape(*x.shape[:axis], arch.linear_num_key_heads, arch.value_groups, *x.shape[axis + 1 :])


def _gates(w: View, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log decay and write strength per value head, `[..., Hv]` float32."""
    rate = jnp.exp(w["A_log"].astype(jnp.float32))
    pace = dense(x, w["in_proj_a.weight"]).astype(jnp.float32) + w["dt_bias"].astype(jnp.float32)
    return -rate * jax.nn.softplus(pace), sigmoid(dense(x, w["in_proj_b.weight"])).astype(jnp.float32)


def _gated_output(w: View, x: jax.Array, out: jax.Array, arch: Qwen35) -> jax.Array:
    """Norm of each value head with a plain gain (not 1 + gain), times `silu(z)` in float32, projected to the stream."""
    z = dense(x, w["in_proj_z.weight"])
    y = out.astype(x.dtype).astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + arch.rms_norm_eps)
    y = w["norm.weight"].astype(jnp.float32) * y.astype(x.dtype) * silu(z.astype(jnp.float32))
    return dense(y.astype(x.dtype), w["out_proj.weight"], inputs=2)
