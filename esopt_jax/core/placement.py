"""Leaves that are sharded over an explicit mesh axis, and the windows of noise that belong to their shards.

A leaf is cut along the first axis of the rows or of the columns of its noise form, so that each device holds a window.
The ES functions work on windows: every device draws the noise of its own and nothing is exchanged. A leaf that is cut
in another way is gathered while it is worked on. Under automatic sharding, or without a mesh, nothing happens here.
Bits do not depend on placement, but for low-rank updates: the last bits of their products depend on shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from esopt_jax.core.rounding import MasterLeaf, Split

T = TypeVar("T")
Form = tuple[int, int]


@dataclass(frozen=True)
class Cut:
    """How a leaf is cut into equal windows of its noise form.

    Attributes:
        axis: mesh axis.
        parts: number of windows.
        form: `(rows, columns)` of one of them.
        by_rows: whether windows are ranges of rows, else of columns.
        spec: placement of the leaf.
        mesh: the mesh.
    """

    axis: str
    parts: int
    form: Form
    by_rows: bool
    spec: PartitionSpec
    mesh: Any

    def corner(self) -> tuple[jax.Array | int, jax.Array | int]:
        """First row and column of this device's window; within `shard_map`."""
        index = lax.axis_index(self.axis)
        return (index * self.form[0], 0) if self.by_rows else (0, index * self.form[1])

    def places(self, form: Form) -> tuple[np.ndarray, int]:
        """Position of each element of the first window in the flat leaf, and by how much the next window's are more."""
        rows, columns = self.form
        first = (np.arange(rows)[:, None] * form[1] + np.arange(columns)).ravel()
        return first.astype(np.int32), rows * form[1] if self.by_rows else columns


def cut_of(leaf: MasterLeaf, form: Form) -> Cut | None:
    """How a leaf with this noise form is cut; None when it is whole everywhere, or cut in another way.

    Args:
        leaf: array or halves; may be traced.
        form: `(rows, columns)` of the whole leaf's noise.
    """
    sharding, shape = jax.typeof(home_of(leaf)).sharding, home_of(leaf).shape
    cuts = [(k, axis) for k, axis in enumerate(sharding.spec) if axis is not None]
    if len(cuts) != 1 or not isinstance(cuts[0][1], str):
        return None
    (k, axis), before = cuts[0], math.prod(shape[: cuts[0][0]])
    parts = sharding.mesh.shape[axis]
    by_rows = before * shape[k] <= form[0]
    if before != (1 if by_rows else form[0]):
        return None
    window = (form[0] // parts, form[1]) if by_rows else (form[0], form[1] // parts)
    return Cut(axis, parts, window, by_rows, sharding.spec, sharding.mesh)


def on_windows(function: Callable[..., T], cut: Cut, *, ins: Any, outs: Any) -> Callable[..., T]:
    """`function` run on each device's own window; `ins` and `outs` are placements, as `jax.shard_map` takes them.

    What all devices share is not checked to be equal: in a pool it lies in one array with what is each device's own.
    """
    mapped: Callable[..., T] = jax.shard_map(
        function, mesh=cut.mesh, in_specs=ins, out_specs=outs, axis_names={cut.axis}, check_vma=False
    )
    return mapped


def varying_with(words: jax.Array, *corner: jax.Array | int) -> jax.Array:
    """The same words, marked as varying over the mesh axis over which the corner of a window does.

    What a loop over draws begins with must vary over the same axes as its body; made from such words, it does.
    """
    for place in corner:
        words = words ^ (jnp.asarray(place, jnp.uint32) & jnp.uint32(0))
    return words


def behind(spec: PartitionSpec, lead: int = 1) -> PartitionSpec:
    """The placement behind `lead` axes that are whole."""
    return over(*((None,) * lead), *spec)


def over(*axes: str | None) -> PartitionSpec:
    """Cut over these mesh axes, one a dimension; None and what is not named is whole."""
    spec: PartitionSpec = PartitionSpec(*axes)  # type: ignore[no-untyped-call]
    return spec


def summed(x: jax.Array, axis: str) -> jax.Array:
    """The sum over the devices of a mesh axis, on all of them; within `on_windows`."""
    total: jax.Array = lax.psum(x, axis)  # type: ignore[no-untyped-call]
    return total


def home_of(leaf: MasterLeaf) -> jax.Array:
    """The array of a leaf that tells its placement."""
    return leaf.hi if isinstance(leaf, Split) else leaf


def gathered(leaves: T) -> T:
    """The tree with every explicitly sharded array whole on every device."""
    result: T = jax.tree.map(lambda x: resharded(x, over(), like=x) if _sharded(x) else x, leaves)
    return result


def placed(tree: T, like: Any, *, lead: int = 0) -> T:
    """Every array of `tree` where its partner in `like` is, behind `lead` axes of its own."""

    def place(x: jax.Array, partner: jax.Array) -> jax.Array:
        spec = behind(jax.typeof(partner).sharding.spec, lead)
        return resharded(x, spec, like=partner) if _sharded(partner) else x

    result: T = jax.tree.map(place, tree, like)
    return result


def resharded(x: jax.Array, spec: PartitionSpec, *, like: jax.Array) -> jax.Array:
    """The array in another placement, on the explicit mesh of `like`."""
    home = NamedSharding(jax.typeof(like).sharding.mesh, spec)
    result: jax.Array = jax.sharding.reshard(x, home)  # type: ignore[no-untyped-call]
    return result


def _sharded(x: jax.Array) -> bool:
    return any(axis is not None for axis in jax.typeof(x).sharding.spec)
