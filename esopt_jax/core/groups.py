"""Which leaves share a compiled program, and the row blocks in which a leaf is worked on.

Small leaves with the same noise form are stacked and handled by one loop, so that a model compiles per kind of leaf and
not per leaf. Large leaves are never stacked (that would copy them); equal ones still share a compiled program, since
nothing about a leaf but its form is static. A leaf's bits do not depend on its companions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp

from esopt_jax.core.master import leaf_shape
from esopt_jax.core.rounding import Fields, MasterLeaf, Split, fields_of
from esopt_jax.types import Master, Plan, Specs

STACK_LIMIT = 1 << 18
"""Leaves of up to this many elements are stacked with their like."""

BLOCK_VALUES = 1 << 18
"""Normals drawn at a time: small enough that accumulator and draw stay in cache, and far under 256 MB."""


@dataclass(frozen=True)
class Group:
    """Leaves handled by one program.

    Attributes:
        indices: positions in the leaf table.
        form: `(rows, columns)` of their noise.
        low_rank: whether their noise is a product of factors.
        keep_float32: whether their views are float32 whatever the compute type.
    """

    indices: tuple[int, ...]
    form: tuple[int, int]
    low_rank: bool
    keep_float32: bool


def group_leaves(master: Master, specs: Specs, plan: Plan) -> tuple[Group, ...]:
    """The groups of a master, every leaf in exactly one, in the order of their first leaf."""
    return _group(specs, tuple(_storage(master[spec.path]) for spec in specs), plan)


@lru_cache(maxsize=16)
def _group(specs: Specs, storage: tuple[str, ...], plan: Plan) -> tuple[Group, ...]:
    members: dict[tuple[object, ...], list[int]] = {}
    for index, (spec, kind) in enumerate(zip(specs, storage, strict=True)):
        alone = index if spec.size > STACK_LIMIT else -1
        low_rank = plan == "low_rank" and spec.is_matrix
        members.setdefault((spec.noise_form, low_rank, spec.keep_float32, kind, alone), []).append(index)
    return tuple(Group(tuple(ids), *key[:3]) for key, ids in members.items())  # type: ignore[arg-type]


def _storage(leaf: MasterLeaf) -> str:
    return "split" if isinstance(leaf, Split) else str(leaf.dtype)


def block_rows(form: tuple[int, int], values: int = BLOCK_VALUES) -> int:
    """Rows of a block of about `values` elements; blocks of one leaf are of nearly equal size.

    Example:
        >>> block_rows((1000, 1024), values=262144)
        250
    """
    rows, columns = form
    blocks = -(-rows // max(1, values // columns))
    return -(-rows // blocks)


def stack_fields(leaves: tuple[MasterLeaf, ...], form: tuple[int, int]) -> Fields:
    """Storage of leaves of one group as `[leaves, rows, columns]` arrays."""
    rows = [tuple(field.reshape(1, *form) for field in fields_of(leaf)) for leaf in leaves]
    return rows[0] if len(rows) == 1 else tuple(jnp.concatenate(parts) for parts in zip(*rows, strict=True))


def unstack(stacked: jax.Array, leaves: tuple[MasterLeaf, ...], lead: tuple[int, ...] = ()) -> list[jax.Array]:
    """`[leaves, *lead, rows, columns]` as one array `[*lead, *leaf shape]` a leaf."""
    return [stacked[i].reshape(*lead, *leaf_shape(leaf)) for i, leaf in enumerate(leaves)]
