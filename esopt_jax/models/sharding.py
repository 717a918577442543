"""Where arrays live: logical axes to the mesh axes `member` (the population) and `model` (heads, MLP, vocabulary).

One rule serves weights, caches and activations, so the compiled program needs an all-reduce where a layer writes back
to the residual stream and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from esopt_jax.errors import EsoptError
from esopt_jax.types import LeafSpec

T = TypeVar("T")

log = logging.getLogger(__name__)

MEMBER, MODEL = "member", "model"
RULES = {"vocab": MODEL, "mlp": MODEL, "kv_heads": MODEL, "key_heads": MODEL, "value_heads": MODEL}
"""Logical axis -> mesh axis; a name that is not here is replicated."""
WHOLE_IF_UNEVEN = ("kv_heads",)


def make_mesh(shape: tuple[int, int]) -> Mesh:
    """A mesh of `shape` = (member, model) over the first devices, with explicit axes; of several processes, this one's.

    Raises:
        EsoptError: fewer devices than the mesh needs, or groups that cannot be dealt out evenly to the processes.
    """
    (groups, width), processes = shape, jax.process_count()
    if groups % processes:
        raise EsoptError(
            f"train.mesh is {list(shape)} for {processes} processes, whose share of the {groups} groups is not even; "
            f"use a multiple of {processes} as its first number"
        )
    needed, found = groups * width, jax.local_device_count() * processes
    if needed > found:
        raise EsoptError(f"train.mesh is {list(shape)}, which needs {needed} devices; {found} found")
    own = (groups // processes, width)
    devices = jax.local_devices()[: own[0] * width]
    return jax.make_mesh(own, (MEMBER, MODEL), axis_types=(AxisType.Explicit, AxisType.Explicit), devices=devices)


def member_groups(mesh: Mesh) -> tuple[Mesh, ...]:
    """Where the model is split, a mesh (1, n) for each of the m groups that hold it together; else none.

    Groups exchange nothing, so a group needs no more than its own devices: a program over all of them would have to be
    told, leaf by leaf, to leave the model as it is split.
    """
    if mesh.shape[MODEL] == 1:
        return ()
    rows = np.split(mesh.devices, mesh.shape[MEMBER])
    return tuple(Mesh(row, mesh.axis_names, axis_types=mesh.axis_types) for row in rows)


def on_mesh(tree: T, mesh: Mesh) -> T:
    """Arrays of another mesh of the same shape, placed alike on this one."""
    return jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, x.sharding.spec)), tree)


def mesh_here(shape: tuple[int, int]) -> tuple[int, int]:
    """One group of `shape`, which is all that weights need, where there are devices for it; else one device, logged."""
    found = jax.local_device_count()
    if shape[1] <= found:
        return (1, shape[1])
    log.warning("train.mesh is %s, a group of which has more devices than the %d here: using one", shape, found)
    return (1, 1)


def partition(shape: Sequence[int], axes: Sequence[str | None], mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """The placement of an array whose dimensions have these sizes and logical names.

    Key-value heads that do not divide over the devices are whole on each of them, as are the queries that read them.
    """
    placed = [RULES.get(axis) if axis else None for axis in axes]
    uneven = [axis in WHOLE_IF_UNEVEN and size % mesh.shape[MODEL] for size, axis in zip(shape, axes, strict=True)]
    return PartitionSpec(*(None if whole else name for whole, name in zip(uneven, placed, strict=True)))


def leaf_sharding(spec: LeafSpec, mesh: Mesh) -> NamedSharding:
    """Where the leaf of `spec` lives on `mesh`.

    Raises:
        EsoptError: an axis that does not divide over the devices.
    """
    placement = partition(spec.shape, spec.axes, mesh)
    for size, name in zip(spec.shape, placement, strict=True):
        if name and size % mesh.shape[name]:
            raise EsoptError(
                f"{spec.path} has an axis of {size}, which does not divide over {mesh.shape[name]} devices of mesh "
                f"axis {name!r}; use a smaller second number in train.mesh"
            )
    return NamedSharding(mesh, placement)


def zeros(shape: tuple[int, ...], axes: Sequence[str | None], dtype: jnp.dtype) -> jax.Array:
    """Zeros placed by the rules on the current mesh; plain zeros when there is none."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return jnp.zeros(shape, dtype)
    return jnp.zeros(shape, dtype, out_sharding=NamedSharding(mesh, partition(shape, axes, mesh)))
