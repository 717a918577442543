"""Fresh weights for training from scratch, benches and tests."""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp

from esopt_jax.types import Key, LeafSpec, Params, Specs


def init_params(key: Key, specs: Specs, *, std: float, dtype: jnp.dtype = jnp.float32) -> Params:
    """Draw every leaf of `specs` as the architecture's own initialiser does.

    Args:
        key: consumed. A leaf's draw depends on the key and its path alone.
        specs: table of leaves.
        std: standard deviation of matrices and convolution taps (`Architecture.initializer_range`).
        dtype: of the leaves.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> spec = LeafSpec("norm.weight", (3,), (None,), 0, "zeros", "model.norm.weight")
        >>> init_params(jax.random.key(0), (spec,), std=0.02)["norm.weight"].tolist()
        [0.0, 0.0, 0.0]
    """
    return {spec.path: _draw(key, spec, std).astype(dtype) for spec in specs}


def _draw(key: Key, spec: LeafSpec, std: float) -> jax.Array:
    tag = hashlib.blake2s(spec.path.encode(), digest_size=4).digest()
    key = jax.random.fold_in(key, int.from_bytes(tag, "little"))
    match spec.init:
        case "zeros":
            return jnp.zeros(spec.shape)
        case "ones":
            return jnp.ones(spec.shape)
        case "decay":
            # log of a rate drawn from 0.01 .. 16, kept away from 0 so that its logarithm is finite
            return jnp.log(jax.random.uniform(key, spec.shape, minval=0.01, maxval=16.0))
        case "normal":
            return std * jax.random.normal(key, spec.shape)
    raise ValueError(f"leaf {spec.path} has unknown init {spec.init!r}")
