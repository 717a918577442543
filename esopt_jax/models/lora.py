"""Low-rank adapters: beside a matrix W lie A and B of rank R, and the model reads W + Aᵀ B. Evolution tunes A and B.

B starts at 0, so that a run starts as its base; A starts as random signs over sqrt(R), so that sigma means the same for
W as in a full run. In a view each pair becomes a `Factored` weight, as low-rank members have, so the forward pass knows
nothing of adapters. They are few and stay in float32, since bfloat16 would lose the small steps. Paths are those of the
matrix with `@left` and `@right` behind.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from esopt_jax.core.master import master_value
from esopt_jax.core.noise import leaf_hash, leaf_words, noise_key
from esopt_jax.core.normals import threefry2x32
from esopt_jax.core.placement import placed
from esopt_jax.core.scope import ADAPTER, adapter_scope
from esopt_jax.core.views import Factored
from esopt_jax.models.load import Model
from esopt_jax.models.sharding import leaf_sharding
from esopt_jax.types import LeafSpec, Master, Params, Purpose, Specs

LEFT, RIGHT = "@left", "@right"


def with_adapters(model: Model, scope: str, *, seed: int, mesh: Mesh | None = None) -> Model:
    """The model with the adapters of `scope` as further leaves; the model itself where the scope has none.

    Args:
        model: a base.
        scope: of a run, as `core.scope.tuned_specs` reads it.
        seed: of the run; decides the signs of A.
        mesh: where the model is, if its leaves are cut; adapters are whole on every device.

    Example:
        >>> from esopt_jax.models.load import open_model
        >>> model = open_model("builtin:sudoku-4x4")
        >>> tuned = with_adapters(model, "lora:2:mlp.up", seed=0)
        >>> [(spec.path, spec.shape) for spec in tuned.specs[len(model.specs) :][:2]]
        [('layers.0.mlp.up_proj.weight@left', (2, 48)), ('layers.0.mlp.up_proj.weight@right', (2, 96))]
    """
    if adapter_scope(scope) is None:
        return model
    adapters = adapter_specs(model.specs, scope)
    homes = {} if mesh is None else {spec.path: leaf_sharding(spec, mesh) for spec in adapters}
    started = {spec.path: jax.device_put(_start(spec, seed), homes.get(spec.path)) for spec in adapters}
    return dataclasses.replace(model, specs=(*model.specs, *adapters), params=ChainMap(started, model.params))


def adapter_specs(specs: Specs, scope: str) -> Specs:
    """The leaves that `scope` adds to a table; none, unless it is one of adapters."""
    found = adapter_scope(scope)
    return () if found is None else tuple(_adapters(specs, *found))


def assembled(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """A view as the forward pass reads it: every matrix with adapters as one `Factored`.

    Also for what goes with a view leaf by leaf, such as axes of `vmap`.
    """
    return {
        path: Factored(leaf, leaves[path + LEFT], leaves[path + RIGHT]) if path + LEFT in leaves else leaf
        for path, leaf in leaves.items()
        if not path.endswith((LEFT, RIGHT))
    }


def merged_leaf(params: Params | Master, path: str) -> jax.Array:
    """The float32 leaf `path` with what its adapters add to it."""
    leaf = master_value(params[path])
    if path + LEFT not in params:
        return leaf
    return _merge(leaf, master_value(params[path + LEFT]), master_value(params[path + RIGHT]))


def base_specs(specs: Specs) -> Specs:
    """The leaves of a table that a file has."""
    return tuple(spec for spec in specs if spec.group != ADAPTER)


@jax.jit
def _merge(leaf: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    change = jnp.einsum("ra,rb->ab", left, right, precision=lax.Precision.HIGHEST).reshape(leaf.shape)
    change = placed(change, leaf)
    return jnp.where(change == 0, leaf, leaf + change)  # a sum would lose the sign of -0


def _adapters(specs: Specs, rank: int, targets: str | None) -> Iterator[LeafSpec]:
    for spec in specs:
        chosen = spec.group == "matrix" if targets is None else re.search(targets, spec.path)
        if spec.is_matrix and chosen:
            for name, size, init in zip((LEFT, RIGHT), spec.noise_form, ("signs", "zeros"), strict=True):
                path = spec.path + name
                yield LeafSpec(path, (rank, size), (None, None), 0, init, path, group=ADAPTER, keep_float32=True)


def _start(spec: LeafSpec, seed: int) -> jax.Array:
    """Where an adapter starts. Signs come from bits, which are the same on every platform; normals would not be."""
    if spec.init == "zeros":
        return jnp.zeros(spec.shape, jnp.float32)
    key = noise_key(seed, 0, 0, purpose=Purpose.ADAPTER)
    words = leaf_words(key[None], np.uint32(leaf_hash(spec.path)))[0]
    bits, _ = threefry2x32((words[0], words[1]), jnp.arange(spec.size, dtype=jnp.uint32))
    sign = 1 - 2 * (bits & 1).astype(jnp.float32)
    return (sign * np.float32(1 / math.sqrt(spec.shape[0]))).reshape(spec.shape)
