"""The gated delta rule: a fast weight matrix per head that forgets, corrects itself and is read, token by token.

For every token, with state `S: [Dk, Dv]`, decay `a = exp(g)` and write strength `beta`:

    S <- a S,   d = beta (v - Sᵀ k),   S <- S + k dᵀ,   o = Sᵀ q

Source: Yang et al., "Gated Delta Networks" (2024), Eq. 10, and its chunked form, section 3.3. `scan_chunks` handles many
tokens as matrix products, `step` one; both touch the state by a single product with the stacked `[k; q]`. The chunked form
here keeps the correction `d` explicit instead of the WY factors: fewer products, and the same formula as a step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

BASE = 8  # below this size a unit triangular matrix is inverted by its (short, well-scaled) Neumann product


def step(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One token per row; `g = beta = 0` leaves the state exactly as it was.

    Args:
        q: `[B, Hk, Dk]` float32, normalised and scaled; `k` alike.
        v: `[B, Hv, Dv]` float32. Value head j reads key head `j // (Hv / Hk)`.
        g: `[B, Hv]` float32, log decay, at most 0; `beta: [B, Hv]` in 0 .. 1.
        state: `[B, Hv, Dk, Dv]` float32.

    Returns:
        Output `[B, Hv, Dv]` and the next state.
    """
    groups = v.shape[1] // k.shape[1]
    keys = jnp.repeat(k, groups, axis=1)
    pair = jnp.repeat(jnp.stack([k, q], axis=2), groups, axis=1)  # [B, Hv, 2, Dk]
    decay = jnp.exp(g)[..., None]
    read = jnp.einsum("bhpk,bhkv->bhpv", pair, state) * decay[..., None]
    change = (v - read[:, :, 0]) * beta[..., None]
    match = jnp.repeat(jnp.sum(k * q, axis=-1), groups, axis=1)[..., None]
    return read[:, :, 1] + match * change, state * decay[..., None] + keys[..., None] * change[..., None, :]


def scan_chunks(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array, *, chunk: int
) -> tuple[jax.Array, jax.Array]:
    """Many tokens per row, in chunks; equal to `step` repeated. Tokens with `g = beta = 0` leave the state alone.

    Args:
        q: `[B, T, Hk, Dk]`; `k` alike; `v: [B, T, Hv, Dv]`; `g` and `beta: [B, T, Hv]`; `state: [B, Hv, Dk, Dv]`.
        chunk: tokens handled by one set of products.

    Returns:
        Output `[B, T, Hv, Dv]` and the state after the last token.
    """
    tokens = q.shape[1]
    count = -(-tokens // chunk)
    pad = count * chunk - tokens

    def split(x: jax.Array) -> jax.Array:  # [B, T, H, ...] -> [count, B, H, chunk, ...]
        x = jnp.pad(x, ((0, 0), (0, pad), *((0, 0),) * (x.ndim - 2)))
        x = x.reshape(x.shape[0], count, chunk, *x.shape[2:])
        return jnp.moveaxis(jnp.moveaxis(x, 1, 0), 3, 2)

    pieces = tuple(split(x) for x in (q, k, v, g, beta))
    if count == 1:
        state, out = _chunk(state, tuple(x[0] for x in pieces))
        out = out[None]
    else:
        state, out = lax.scan(_chunk, state, pieces)
    out = jnp.moveaxis(jnp.moveaxis(out, 0, 1), 2, 3)  # [B, count, chunk, Hv, Dv]
    return out.reshape(out.shape[0], count * chunk, *out.shape[3:])[:, :tokens], state


def _chunk(state: jax.Array, piece: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """One chunk of C tokens: `q, k: [B, Hk, C, Dk]`, `v: [B, Hv, C, Dv]`, `g, beta: [B, Hv, C]`."""
    q, k, v, g, beta = piece
    size, groups = q.shape[2], v.shape[1] // q.shape[1]
    past = jnp.tril(jnp.ones((size, size), bool))
    log_decay = jnp.cumsum(g, axis=-1)
    gaps = log_decay[..., :, None] - log_decay[..., None, :]
    fade = jnp.exp(jnp.where(past, gaps, -jnp.inf))  # [B, Hv, C, C]; masked before exp, whose argument may be huge
    pair = jnp.concatenate([k, q], axis=2)
    against_keys = jnp.repeat(jnp.einsum("bhik,bhjk->bhij", pair, k), groups, axis=1)  # [B, Hv, 2C, C]
    read = jnp.einsum("bhik,bhkv->bhiv", jnp.repeat(pair, groups, axis=1), state)
    read = read * jnp.exp(jnp.tile(log_decay, 2))[..., None]
    overlap = jnp.where(jnp.tril(past, -1), against_keys[:, :, :size] * fade, 0.0) * beta[..., None]
    change = unit_lower_inverse(overlap) @ (beta[..., None] * (v - read[:, :, :size]))
    out = read[:, :, size:] + (against_keys[:, :, size:] * fade) @ change
    total = log_decay[..., -1:]
    keys = jnp.repeat(k, groups, axis=1) * jnp.exp(total - log_decay)[..., None]
    return state * jnp.exp(total)[..., None] + jnp.einsum("bhck,bhcv->bhkv", keys, change), out


def unit_lower_inverse(a: jax.Array) -> jax.Array:
    """`(I + a)^-1` for strictly lower triangular `a: [..., C, C]`.

    Blocks are inverted by halves; a block of at most 8 uses `(I - a)(I + a^2)(I + a^4)`, exact since `a^8 = 0`. Larger
    powers would cancel badly when keys repeat.
    """
    size = a.shape[-1]
    if size <= BASE:
        eye = jnp.eye(size, dtype=a.dtype)
        square = a @ a
        return (eye - a) @ (eye + square) @ (eye + square @ square)
    half = size // 2
    top = unit_lower_inverse(a[..., :half, :half])
    bottom = unit_lower_inverse(a[..., half:, half:])
    corner = -bottom @ a[..., half:, :half] @ top
    upper = jnp.concatenate([top, jnp.zeros_like(a[..., :half, half:])], axis=-1)
    return jnp.concatenate([upper, jnp.concatenate([corner, bottom], axis=-1)], axis=-2)
