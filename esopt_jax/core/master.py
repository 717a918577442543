"""Formats of the weights that the update writes.

`float32` keeps 4 bytes a weight. `split` keeps a matrix as bfloat16 `hi`, which rollouts read as it is, and int16 `lo`
that restores the float32 value exactly: also 4 bytes. `bfloat16` keeps 2 bytes and loses what rounding drops. Vector
leaves of `split` and leaves marked `keep_float32` stay plain float32.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from esopt_jax.core.rounding import MasterLeaf, Split, leaf_shape, leaf_value, round_nearest, split
from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.types import LeafSpec, Master, MasterFormat, Params, Specs, View

__all__ = [
    "Split",
    "base_leaf",
    "base_view",
    "check_leaves",
    "make_master",
    "master_leaf",
    "master_value",
    "view_dtype",
]


def make_master(params: Params, *, specs: Specs, format: MasterFormat) -> Master:
    """The weights in the format that the update writes; shares no memory with `params`.

    Args:
        params: path -> float32 array (other float types are converted).
        specs: the leaf table; decides which leaves stay float32.
        format: `float32`, `split` or `bfloat16` (rounded to nearest even).

    Returns:
        path -> float32 array, `Split`, or bfloat16 array.

    Raises:
        EsoptError: unknown format, or `params` and `specs` name different leaves or shapes.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (1, 2), (None, None), 1, "normal", "w"),)
        >>> make_master({"w": jnp.ones((1, 2))}, specs=specs, format="split")["w"].hi.dtype
        dtype(bfloat16)
    """
    check_leaves(params, specs)
    return {spec.path: master_leaf(params[spec.path], spec=spec, format=format) for spec in specs}


def master_leaf(x: jax.Array, *, spec: LeafSpec, format: MasterFormat) -> MasterLeaf:
    """One leaf of `make_master`, for weights that are read one after another.

    Example:
        >>> spec = LeafSpec("w", (1, 2), (None, None), 1, "normal", "w")
        >>> master_leaf(jnp.ones((1, 2), jnp.bfloat16), spec=spec, format="split").lo.tolist()
        [[0, 0]]
    """
    if format not in ("float32", "split", "bfloat16"):
        raise EsoptError(f"master format {format!r}: {did_you_mean(str(format), ('float32', 'split', 'bfloat16'))}")
    if format == "float32" or spec.keep_float32 or (format == "split" and not spec.is_matrix):
        leaf: MasterLeaf = jnp.array(x, jnp.float32)  # a copy: the update donates its master
    else:
        x = jnp.asarray(x, jnp.float32)
        leaf = split(x) if format == "split" else round_nearest(x)
    return leaf


def check_leaves(params: Params | Master, specs: Specs) -> None:
    """Refuse weights whose paths or shapes are not those of `specs`.

    Raises:
        EsoptError: naming the missing, the unexpected and the misshapen leaves.
    """
    wanted = {spec.path: spec.shape for spec in specs}
    found = {path: leaf_shape(leaf) for path, leaf in params.items()}
    missing, unexpected = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    misshapen = [
        f"{p}: {found[p]} instead of {wanted[p]}" for p in sorted(wanted) if p in found and found[p] != wanted[p]
    ]
    lists = {"missing": missing, "unexpected": unexpected, "wrong shape": misshapen}
    if any(lists.values()):
        text = "; ".join(f"{name}: {', '.join(paths)}" for name, paths in lists.items() if paths)
        raise EsoptError(f"weights do not match the leaf table: {text}")


@jax.jit
def master_value(leaf: MasterLeaf) -> jax.Array:
    """The float32 value of one leaf of a master.

    Example:
        >>> float(master_value(split(jnp.float32(0.3)))) == float(jnp.float32(0.3))
        True
    """
    return leaf_value(leaf)


def base_view(master: Master, *, specs: Specs, dtype: Any) -> View:
    """What the unperturbed forward pass reads.

    For a `split` master and bfloat16 compute a matrix is `hi` itself, no copy. Leaves marked `keep_float32` are float32
    whatever `dtype` is, as in a member's view.

    Args:
        master: path -> master leaf.
        specs: the leaf table.
        dtype: compute type, float32 or bfloat16.

    Returns:
        path -> array of `dtype` (or float32).

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (1, 2), (None, None), 1, "normal", "w"),)
        >>> master = make_master({"w": jnp.ones((1, 2))}, specs=specs, format="split")
        >>> base_view(master, specs=specs, dtype=jnp.bfloat16)["w"] is master["w"].hi
        True
    """
    return {spec.path: base_leaf(master[spec.path], view_dtype(dtype, spec.keep_float32)) for spec in specs}


def base_leaf(leaf: MasterLeaf, dtype: Any) -> jax.Array:
    """One unperturbed leaf in `dtype`; `hi` or the array itself where that is already its type."""
    if isinstance(leaf, Split) and dtype == jnp.bfloat16:
        return leaf.hi
    if not isinstance(leaf, Split) and leaf.dtype == dtype:
        return leaf
    return cast(master_value(leaf), dtype)


def view_dtype(dtype: Any, keep_float32: bool) -> Any:
    """The compute type of a leaf.

    Raises:
        EsoptError: `dtype` is neither float32 nor bfloat16.
    """
    if jnp.dtype(dtype) not in (jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16)):
        raise EsoptError(f"compute dtype {jnp.dtype(dtype).name!r} is not supported; use float32 or bfloat16")
    return jnp.dtype(jnp.float32) if keep_float32 else jnp.dtype(dtype)


def cast(x: jax.Array, dtype: Any) -> jax.Array:
    """float32 as float32 or, rounded to nearest even, as bfloat16."""
    return round_nearest(x) if jnp.dtype(dtype) == jnp.bfloat16 else x
