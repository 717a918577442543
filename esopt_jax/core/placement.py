"""Leaves that are sharded over explicit mesh axes: gathered for the ES functions, and their results placed back.

The ES functions flatten, slice and loop over leaves, for which explicit sharding has no rule. A leaf is gathered while
it is worked on; under automatic sharding, or without a mesh, nothing happens here. Bits do not depend on placement.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from jax.sharding import PartitionSpec

T = TypeVar("T")


def gathered(leaves: T) -> T:
    """The tree with every explicitly sharded array whole on every device."""
    result: T = jax.tree.map(lambda x: _reshard(x, ()) if _sharded(x) else x, leaves)
    return result


def placed(tree: T, like: Any, *, lead: int = 0) -> T:
    """Every array of `tree` where its partner in `like` is, behind `lead` axes of its own."""

    def place(x: jax.Array, partner: jax.Array) -> jax.Array:
        return _reshard(x, ((None,) * lead) + tuple(jax.typeof(partner).sharding.spec)) if _sharded(partner) else x

    result: T = jax.tree.map(place, tree, like)
    return result


def _reshard(x: jax.Array, axes: tuple[Any, ...]) -> jax.Array:
    result: jax.Array = jax.sharding.reshard(x, PartitionSpec(*axes))  # type: ignore[no-untyped-call]
    return result


def _sharded(x: jax.Array) -> bool:
    return any(axis is not None for axis in jax.typeof(x).sharding.spec)
