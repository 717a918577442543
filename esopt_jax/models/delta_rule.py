"""The gated delta rule: a fast weight matrix per head that forgets, corrects itself and is read, token by token.

For every token, with state `S: [Dk, Dv]`, decay `a = exp(g)` and write strength `beta`:

    S <- a S,   d = beta (v - Sᵀ k),   S <- S + k dᵀ,   o = Sᵀ q

Source: Yang et al., "Gated Delta Networks" (2024), Eq. 10, and its chunked form, section 3.3. `scan_chunks` handles
many tokens by matrix products, `step` one. Both keep the correction `d` explicit and touch the old state by one product
with the stacked `[k; q]`, so the chunk is the step with matrices in place of vectors.

Heads are grouped: each of the Hk key heads serves G value heads, whose states lie side by side, `[Dk, G * Dv]`. A
product with the keys then serves all G of them and nothing is repeated.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

EXACT = "highest"
"""The state is summed up over a whole episode: accelerators must not round its products to fewer bits."""

UNROLLED = 4
"""Up to this many chunks are unrolled, more are scanned."""

NEUMANN = 8
"""Size up to which a unit triangular matrix is inverted by its Neumann product: short, and still well scaled."""


def step(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One token per row; `g = beta = 0` leaves the state exactly as it was.

    All arrays are float32.

    Args:
        q: `[B, Hk, Dk]`, normalised and scaled.
        k: `[B, Hk, Dk]`, normalised.
        v: `[B, Hk, G, Dv]`.
        g: `[B, Hk, G]`, log decay, at most 0.
        beta: `[B, Hk, G]`, in 0 .. 1.
        state: `[B, Hk, Dk, G * Dv]`.

    Returns:
        Output `[B, Hk, G, Dv]` and the next state.
    """
    wide = (*v.shape[:2], v.shape[2] * v.shape[3])
    decay, beta = (jnp.broadcast_to(t[..., None], v.shape).reshape(wide) for t in (jnp.exp(g), beta))
    read = jnp.einsum("bhpk,bhkw->bhpw", jnp.stack([k, q], axis=2), state, precision=EXACT)
    change = (v.reshape(wide) - read[:, :, 0] * decay) * beta
    out = read[:, :, 1] * decay + jnp.sum(k * q, axis=-1, keepdims=True) * change
    return out.reshape(v.shape), state * decay[:, :, None] + k[..., None] * change[:, :, None]


def scan_chunks(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array, *, chunk: int
) -> tuple[jax.Array, jax.Array]:
    """Many tokens per row, in chunks; equal to `step` repeated. Tokens with `g = beta = 0` leave the state alone.

    All arrays are float32.

    Args:
        q: `[B, Hk, T, Dk]`, normalised and scaled.
        k: `[B, Hk, T, Dk]`, normalised.
        v: `[B, Hk, G, T, Dv]`.
        g: `[B, Hk, G, T]`, log decay, at most 0.
        beta: `[B, Hk, G, T]`, in 0 .. 1.
        state: `[B, Hk, Dk, G * Dv]`.
        chunk: tokens handled by one set of products.

    Returns:
        Output `[B, Hk, G, T, Dv]` and the state after the last token.
    """
    tokens = q.shape[2]
    count = -(-tokens // chunk)

    def split(x: jax.Array, axis: int) -> jax.Array:  # T -> leading count, chunk in its place
        widths = [(0, 0)] * x.ndim
        widths[axis] = (0, count * chunk - tokens)
        x = jnp.pad(x, widths)
        return jnp.moveaxis(x.reshape(*x.shape[:axis], count, chunk, *x.shape[axis + 1 :]), axis, 0)

    def body(state: jax.Array, piece: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        out, state = _chunk(*piece, state)
        return state, out

    pieces = (split(q, 2), split(k, 2), *(split(x, 3) for x in (v, g, beta)))
    with jax.default_matmul_precision(EXACT):
        state, out = lax.scan(body, state, pieces, unroll=count <= UNROLLED)
    out = jnp.moveaxis(out, 0, 3)
    return out.reshape(*out.shape[:3], count * chunk, out.shape[-1])[:, :, :, :tokens], state


def _chunk(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One chunk of C tokens, shapes as in `scan_chunks` with T = C.

    With decay sums `c_i = g_0 + ... + g_i`, the corrections of a chunk solve a unit lower triangular system:

        (I + A) d = beta (v - e^c (k S)),   A_ij = beta_i e^(c_i - c_j) k_i · k_j   for j < i
    """
    size = q.shape[2]
    past = jnp.tril(jnp.ones((size, size), bool))
    total = g @ past.T.astype(g.dtype)  # a running sum; as a product it is not recomputed inside the next loop
    # Masked before exp: above the diagonal the argument may be large and positive.
    fade = jnp.exp(jnp.where(past, total[..., :, None] - total[..., None, :], -jnp.inf))  # [B, Hk, G, C, C]
    pair = jnp.concatenate([k, q], axis=2)
    match = jnp.einsum("bhik,bhjk->bhij", pair, k)[:, :, None]  # [B, Hk, 1, 2C, C]
    read = jnp.einsum("bhik,bhkw->bhiw", pair, state)
    read = read.reshape(*read.shape[:3], *v.shape[2:5:2]).swapaxes(2, 3)  # [B, Hk, G, 2C, Dv]
    decay = jnp.exp(total)[..., None]
    overlap = jnp.where(jnp.tril(past, -1), match[..., :size, :] * fade, 0.0) * beta[..., None]
    change = unit_lower_inverse(overlap) @ (beta[..., None] * (v - read[..., :size, :] * decay))
    # Output and state both take the corrections through one product with stacked rows: [q kᵀ ; decayed kᵀ] · d.
    rest = jnp.exp(total[..., -1:] - total)[..., None, :]
    rows = jnp.concatenate([match[..., size:, :] * fade, k.swapaxes(-1, -2)[:, :, None] * rest], axis=-2) @ change
    last = jnp.broadcast_to(jnp.exp(total[..., -1:]), v[..., 0, :].shape).reshape(*state.shape[:2], state.shape[-1])
    state = state * last[:, :, None] + rows[..., size:, :].swapaxes(2, 3).reshape(state.shape)
    return read[..., size:, :] * decay + rows[..., :size, :], state


def unit_lower_inverse(a: jax.Array) -> jax.Array:
    """`(I + a)^-1` for strictly lower triangular `a: [..., C, C]`.

    Blocks are inverted by halves; a block of at most 8 by `(I - a)(I + a^2)(I + a^4)`, exact since `a^8 = 0`. Higher
    powers would cancel badly where keys repeat.
    """
    size = a.shape[-1]
    if size <= NEUMANN:
        eye = jnp.eye(size, dtype=a.dtype)
        square = a @ a
        return (eye - a) @ (eye + square) @ (eye + square @ square)
    half = size // 2
    top = unit_lower_inverse(a[..., :half, :half])
    bottom = unit_lower_inverse(a[..., half:, half:])
    corner = -bottom @ (a[..., half:, :half] @ top)
    upper = jnp.concatenate([top, jnp.zeros_like(a[..., :half, half:])], axis=-1)
    return jnp.concatenate([upper, jnp.concatenate([corner, bottom], axis=-1)], axis=-2)
