"""Products that do not know evolution strategies exist: a weight is an array or a `Factored` one.

`dense`, `embed` and `unembed` are written for one member. Under `jax.vmap` over members a factored weight keeps its
base unbatched, so the population shares one large product per layer and each member adds only its low-rank term.

With a mesh of explicit axes the placement of a result follows from the placements of its operands; contracted sharded
axes become one all-reduce. Without a mesh these are plain contractions.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from esopt_jax.core.perturb import Factored

Weight = jax.Array | Factored
FUSED_RANK = 8
"""Up to this rank the second low-rank product is written as R fused multiply-adds, which beat a thin matrix product."""


def dense(x: jax.Array, w: Weight, *, inputs: int = 1) -> jax.Array:
    """`x · w` over the last `inputs` axes of `x` and the first `inputs` axes of `w`.

    Args:
        x: `[..., *in]`.
        w: `[*in, *out]`, plain or factored.
        inputs: number of contracted axes.

    Returns:
        `[..., *out]`.
    """
    if not isinstance(w, Factored):
        return _contract(x, w, tuple(range(inputs)))
    outputs = w.base.shape[inputs:]
    flat = x.reshape(*x.shape[: x.ndim - inputs], math.prod(x.shape[x.ndim - inputs :]))
    change = _low_rank(flat, w.left, w.right.reshape(w.right.shape[0], *outputs))
    return _contract(x, w.base, tuple(range(inputs))) + change


def embed(ids: jax.Array, w: Weight) -> jax.Array:
    """Rows `ids` of the table `w: [V, D]`, `[...]` int32 -> `[..., D]`. A factored table is never formed."""
    if not isinstance(w, Factored):
        return _rows(w, ids)
    placement = _placement(w.left, range(1), ids, tuple(range(ids.ndim)))
    mixture = w.left.at[:, ids].get(mode="clip", out_sharding=placement)  # [R, ...]
    change = sum(mixture[i][..., None] * w.right[i] for i in range(w.right.shape[0]))
    rows = _rows(w.base, ids)
    return rows + change.astype(rows.dtype)


def unembed(x: jax.Array, w: Weight) -> jax.Array:
    """Scores of every row of the table `w: [V, D]` for `x: [..., D]`: `x · wᵀ`, `[..., V]`."""
    if not isinstance(w, Factored):
        return _contract(x, w, (1,))
    return _contract(x, w.base, (1,)) + _low_rank(x, w.right, w.left)


def _low_rank(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """`(x · firstᵀ) · second` for `first: [R, in]` and `second: [R, *out]`, computed in their type, in that of `x`."""
    mixture = _contract(x.astype(first.dtype), first, (1,))
    rank = second.shape[0]
    if rank > FUSED_RANK:
        return _contract(mixture, second, (0,)).astype(x.dtype)
    spread = (..., *(None,) * (second.ndim - 1))
    return sum(mixture[..., i][spread] * second[i] for i in range(rank)).astype(x.dtype)


def _contract(x: jax.Array, w: jax.Array, contracted: tuple[int, ...]) -> jax.Array:
    """Contract the last axes of `x` with the axes `contracted` of `w`: the rest of `x`, then the rest of `w`."""
    kept = tuple(i for i in range(w.ndim) if i not in contracted)
    placement = _placement(x, range(x.ndim - len(contracted)), w, kept)
    if len(contracted) > 1:  # one long contracted axis: several are not merged by the compiler, at a tenth of the speed
        x = x.reshape(*x.shape[: -len(contracted)], -1)
        w, contracted = w.reshape(-1, *w.shape[len(contracted) :]), (0,)
    return lax.dot_general(x, w, (((x.ndim - 1,), contracted), ((), ())), out_sharding=placement)


def _rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    return table.at[ids].get(mode="clip", out_sharding=_placement(ids, range(ids.ndim), table, (1,)))


def _placement(x: jax.Array, x_axes: range, w: jax.Array, w_axes: tuple[int, ...]) -> NamedSharding | None:
    """Where a product of `x` and `w` lives: each kept axis stays where its operand has it."""
    left, right = jax.typeof(x).sharding, jax.typeof(w).sharding
    mesh = left.mesh if right.mesh.empty else right.mesh
    if mesh.empty:
        return None
    return NamedSharding(mesh, PartitionSpec(*(left.spec[i] for i in x_axes), *(right.spec[i] for i in w_axes)))


# --- pointwise --------------------------------------------------------------------------------------------------------


def rms_norm(x: jax.Array, gain: jax.Array, *, eps: float) -> jax.Array:
    """Root-mean-square norm over the last axis with a zero-centred gain, in float32: `x / rms(x) * (1 + gain)`."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    return (y * (1.0 + gain.astype(jnp.float32))).astype(x.dtype)


def plain_rms_norm(x: jax.Array, gain: jax.Array, *, eps: float) -> jax.Array:
    """Root-mean-square norm over the last axis, in float32: `x / rms(x) * gain`.

    The published Llama code rounds to the type of `x` before the gain. In bfloat16 the gain's small steps would be lost
    in the second rounding, each on the grid of the first; with one rounding they come through on average.
    """
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    return (y * gain.astype(jnp.float32)).astype(x.dtype)


def sigmoid(x: jax.Array) -> jax.Array:
    """`1 / (1 + exp(-x))`, computed in float32."""
    return (1.0 / (1.0 + _exp_minus(x))).astype(x.dtype)


def silu(x: jax.Array) -> jax.Array:
    """`x / (1 + exp(-x))`, computed in float32.

    The division keeps XLA:CPU from recomputing the cheap-looking argument inside every consumer.
    """
    return (x.astype(jnp.float32) / (1.0 + _exp_minus(x))).astype(x.dtype)


def _exp_minus(x: jax.Array) -> jax.Array:
    # The bound changes no result and keeps the gradient finite where exp would overflow.
    return jnp.exp(-jnp.maximum(x.astype(jnp.float32), -80.0))
