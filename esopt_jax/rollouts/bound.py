"""What a step of decoding costs at least: the products of all rows with the shared matrices, or with their own.

The rest of a step (attention, states, norms, sampling, the noise of low-rank members) can be made small; these cannot.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.views import Factored, Shared
from esopt_jax.types import LeafSpec, Specs, View

ROUNDS = 3
LONG_S = 0.02
"""Steps that are shorter are timed several at once, so that the cost of a call does not count."""

MOST_STEPS = 256


def product_seconds(view: View, shape: tuple[int, int], *, specs: Specs, dtype: Any) -> float:
    """Seconds that the matrix products of one token of all rows take, and nothing else: the least of `ROUNDS`.

    Args:
        view: of M members, as a rollout has it, on one device.
        shape: M and C.
        specs: its leaves. An embedding counts where it is the head as well; looking a token up is no product.
        dtype: of activations.

    Example:
        >>> spec = LeafSpec("w", (8, 4), (None, None), 1, "normal", "w")
        >>> product_seconds({"w": jnp.ones((2, 8, 4))}, (2, 3), specs=(spec,), dtype=jnp.float32) > 0
        True
    """
    untied = any(spec.path == "lm_head.weight" for spec in specs)
    used = tuple(spec for spec in specs if spec.is_matrix and not (untied and spec.path == "embed_tokens.weight"))
    rows = {width: jnp.ones((*shape, width), dtype) for width in {_width(spec) for spec in used}}
    run = partial(products, {spec.path: view[spec.path] for spec in used}, rows, specs=used)

    def seconds(steps: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(run(steps=np.int32(steps)))
        return time.perf_counter() - began

    seconds(1)  # compiles
    steps = min(MOST_STEPS, 1 + int(LONG_S / seconds(1)))
    return min(seconds(steps) for _ in range(ROUNDS)) / steps


def _width(spec: LeafSpec) -> int:
    """What a row that meets the leaf has: the matrix form is read from its rows, a head from its columns."""
    return spec.shape[1] if spec.group == "embedding" else math.prod(spec.shape[: spec.inputs])


@partial(jax.jit, static_argnames="specs")
def products(view: View, rows: dict[int, jax.Array], *, specs: Specs, steps: jax.Array) -> jax.Array:
    """The largest result of all products of `steps` steps, each of which waits for the one before."""

    def step(_: jax.Array, largest: jax.Array) -> jax.Array:
        shifted = {width: x + 0 * largest.astype(x.dtype) for width, x in rows.items()}
        return jnp.stack([_product(view[spec.path], shifted[_width(spec)], spec) for spec in specs]).max()

    return lax.fori_loop(0, steps, step, jnp.float32(0))


def _product(leaf: Any, x: jax.Array, spec: LeafSpec) -> jax.Array:
    shared = isinstance(leaf, Factored | Shared)
    w = leaf.base if shared else leaf
    members = () if shared else w.shape[:1]
    w = w.reshape(*members, *(spec.shape if spec.group == "embedding" else (_width(spec), -1)))
    x = x.reshape(-1, x.shape[-1]) if shared else x
    contracted = w.ndim - 1 if spec.group == "embedding" else w.ndim - 2
    batch = ((), ()) if shared else ((0,), (0,))
    y = lax.dot_general(x, w.astype(x.dtype), (((x.ndim - 1,), (contracted,)), batch))
    return jnp.max(lax.optimization_barrier(y)).astype(
        jnp.float32
    )  # one number, so that no result is kept, and none is left out
