"""Where arrays live: logical axes to the mesh axes `member` (the population) and `model` (heads, MLP, vocabulary).

One rule serves weights, caches and activations, so the compiled program needs an all-reduce where a layer writes back
to the residual stream and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from esopt_jax.errors import EsoptError
from esopt_jax.types import LeafSpec, Params, Specs

log = logging.getLogger(__name__)

MEMBER, MODEL = "member", "model"
RULES = {"vocab": MODEL, "mlp": MODEL, "kv_heads": MODEL, "key_heads": MODEL, "value_heads": MODEL}
"""Logical axis -> mesh axis; a name that is not here is replicated."""


def make_mesh(shape: tuple[int, int]) -> Mesh:
    """A mesh of `shape` = (member, model) over the first devices, with explicit axes.

    Raises:
        EsoptError: fewer devices than the mesh needs.
    """
    needed, found = shape[0] * shape[1], jax.device_count()
    if needed > found:
        raise EsoptError(f"train.mesh is {list(shape)}, which needs {needed} devices; {found} found")
    devices = jax.devices()[:needed]
    return jax.make_mesh(shape, (MEMBER, MODEL), axis_types=(AxisType.Explicit, AxisType.Explicit), devices=devices)


def mesh_here(shape: tuple[int, int]) -> tuple[int, int]:
    """`shape` where there are devices for it; else one device, which is logged."""
    if shape[0] * shape[1] <= jax.device_count():
        return shape
    log.warning("train.mesh is %s, which needs more devices than the %d here: using one", shape, jax.device_count())
    return (1, 1)


def partition(axes: Sequence[str | None]) -> PartitionSpec:
    """The placement of an array whose dimensions have these logical names."""
    return PartitionSpec(*(RULES.get(axis) if axis else None for axis in axes))


def leaf_sharding(spec: LeafSpec, mesh: Mesh) -> NamedSharding:
    """Where the leaf of `spec` lives on `mesh`.

    Raises:
        EsoptError: an axis that does not divide over the devices.
    """
    for size, name in zip(spec.shape, partition(spec.axes), strict=True):
        if name and size % mesh.shape[name]:
            raise EsoptError(
                f"{spec.path} has an axis of {size}, which does not divide over {mesh.shape[name]} devices of mesh "
                f"axis {name!r}; use a smaller second number in train.mesh"
            )
    return NamedSharding(mesh, partition(spec.axes))


def shard_params(params: Params, specs: Specs, mesh: Mesh) -> Params:
    """The same weights, placed on `mesh` by the rules; replicated over its `member` axis."""
    return {spec.path: jax.device_put(params[spec.path], leaf_sharding(spec, mesh)) for spec in specs}


def zeros(shape: tuple[int, ...], axes: Sequence[str | None], dtype: jnp.dtype) -> jax.Array:
    """Zeros placed by the rules on the current mesh; plain zeros when there is none."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return jnp.zeros(shape, dtype)
    return jnp.zeros(shape, dtype, out_sharding=NamedSharding(mesh, partition(axes)))
