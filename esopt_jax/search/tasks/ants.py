"""What every ant does: draw where to go next, from weights over what it may still visit."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def colony_keys(seeds: jax.Array) -> jax.Array:
    """One key per instance, from its seed; all programs meet the same draws."""
    return jax.vmap(jax.random.key)(seeds)


def colony_draws(key: jax.Array, iteration: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """The uniform draws of one iteration of one colony, `shape`."""
    return jax.random.uniform(jax.random.fold_in(key, iteration), shape, dtype)


def choose(uniform: jax.Array, weights: jax.Array, allowed: jax.Array) -> jax.Array:
    """Draw an index with probability in proportion to its weight, `[]` int32.

    One uniform number is turned over the running sum of the weights. Only an allowed index can come out, however the
    sum rounds: of those, the first one past the drawn point, else the last one.

    Args:
        uniform: `[]`, in [0, 1).
        weights: `[n]`, above 0.
        allowed: `[n]` bool, at least one of them true.

    Example:
        >>> choose(jnp.array(0.5), jnp.array([1.0, 2.0, 5.0, 2.0]), jnp.array([True, True, False, True])).item()
        1
    """
    count = weights.shape[-1]
    # A product with a triangle is the running sum; XLA's own is slower on a CPU, and so is its argmax.
    triangle = jnp.triu(jnp.ones((count, count), weights.dtype))
    running = jnp.matmul(jnp.where(allowed, weights, 0), triangle, precision="highest")
    place = jnp.arange(count, dtype=jnp.int32)
    rank = jnp.where(running > uniform * running[-1], 2 * count - place, place)
    best = jnp.where(allowed, rank, -1).max()
    return jnp.where(best >= count, 2 * count - best, best)
