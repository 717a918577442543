"""Views: how a member of the population reaches the model, without the base weights ever being written.

In the full plan a member is materialised: every leaf is `base + sigma * eps`. In the low-rank plan a matrix leaf is a
`Factored`: the base, shared by the population, and the factors of the perturbation; vectors are materialised. Model
code reads a view through `dense`, `embed` and `unembed` and does not know which it has.

A member's bits are the same alone, in a batch, in a loop and on any number of devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from esopt_jax.core.layout import forms_of, make_layout
from esopt_jax.core.master import base_leaf, view_dtype
from esopt_jax.core.members import large_factors, large_members, pooled_factors, pooled_members
from esopt_jax.core.noise import leaf_hashes, noise_key, noise_sign
from esopt_jax.core.placement import cut_of, home_of, over, resharded
from esopt_jax.core.rounding import MasterLeaf
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.views import Factored, Shared, materialize, member_view, unwrapped, view_axes
from esopt_jax.types import Key, LeafSpec, Master, Plan, Specs, View

__all__ = [
    "NO_MULTIPLIERS",
    "Factored",
    "Shared",
    "group_multipliers",
    "materialize",
    "member_view",
    "perturb",
    "perturb_population",
    "unwrapped",
    "view_axes",
]

NO_MULTIPLIERS: Mapping[str, float] = MappingProxyType({})


def perturb(
    key: Key,
    master: Master,
    *,
    specs: Specs,
    sigma: jax.Array | float,
    plan: Plan,
    rank: int,
    dtype: Any,
    sign: jax.Array | float = 1.0,
    multipliers: Mapping[str, float] = NO_MULTIPLIERS,
    scope: str = "full",
) -> View:
    """The view of one member: weights plus `sigma * eps`, `eps` from `key`.

    Args:
        key: `[]` typed key of the member (`noise_key`).
        master: the weights; only read.
        specs: the leaf table.
        sigma: `[]` float32, standard deviation of the perturbation; may be traced.
        plan: `full` or `low_rank`.
        rank: R; read by the low-rank plan only.
        dtype: compute type; members are rounded to nearest even.
        sign: `[]`, -1 for the second of an antithetic pair.
        multipliers: leaf group -> factor on sigma; 1 where absent.
        scope: which leaves are perturbed, as `tuned_specs` reads it.

    Returns:
        path -> array of the leaf's shape or `Factored`.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (3, 2), (None, None), 1, "normal", "w"),)
        >>> at = dict(specs=specs, sigma=0.1, plan="low_rank", rank=1, dtype=jnp.float32)
        >>> view = perturb(noise_key(0, 0, 0), {"w": jnp.zeros((3, 2))}, **at)
        >>> view["w"].left.shape, view["w"].right.shape
        ((1, 3), (1, 2))
    """
    scales = (jnp.asarray(sigma, jnp.float32) * jnp.asarray(sign, jnp.float32))[None]
    at = {"specs": specs, "plan": plan, "rank": rank, "dtype": dtype, "multipliers": multipliers}
    return member_view(_perturb_many(key[None], scales, master, scope=scope, **at), 0)


def perturb_population(
    seed: jax.Array | int,
    generation: jax.Array | int,
    members: jax.Array,
    master: Master,
    *,
    specs: Specs,
    sigma: jax.Array | float,
    plan: Plan,
    rank: int,
    dtype: Any,
    antithetic: bool = False,
    multipliers: Mapping[str, float] = NO_MULTIPLIERS,
    scope: str = "full",
) -> View:
    """The views of several members, in one pass over the weights; scratch beyond the result is bounded.

    May be called as it is, which compiles one program per kind of leaf, or under `jit` and `shard_map`. `vmap` the
    forward pass over the result with `view_axes`.

    Args:
        seed: `[]` of the run, 0 .. 2^32-1; may be traced, as may `generation`.
        generation: `[]`, 0-based.
        members: `[M]` int32, indices in the population.
        master: the weights; only read.
        specs: the leaf table.
        sigma: `[]` float32, standard deviation of the perturbation; may be traced.
        plan: `full` or `low_rank`.
        rank: R; read by the low-rank plan only.
        dtype: compute type; members are rounded to nearest even.
        antithetic: members 2k and 2k+1 are mirror images.
        multipliers: leaf group -> factor on sigma; 1 where absent.
        scope: which leaves are perturbed, as `tuned_specs` reads it.

    Returns:
        path -> `[M, *shape]` array, or `Factored` with an unbatched `base` and factors `[M, R, ...]`; `Shared` for
        a leaf outside the scope.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (3, 2), (None, None), 1, "normal", "w"),)
        >>> at = dict(specs=specs, sigma=0.1, plan="full", rank=1, dtype=jnp.float32, antithetic=True)
        >>> view = perturb_population(0, 0, jnp.arange(4), {"w": jnp.zeros((3, 2))}, **at)
        >>> view["w"].shape, bool((view["w"][0] == -view["w"][1]).all())
        ((4, 3, 2), True)
    """
    at = {"specs": specs, "plan": plan, "rank": rank, "dtype": dtype, "multipliers": multipliers}
    keys, scales = _member_keys(jnp.uint32(seed), jnp.uint32(generation), members, sigma, antithetic=antithetic)
    return _perturb_many(keys, scales, master, scope=scope, **at)


def group_multipliers(specs: Specs, multipliers: Mapping[str, float]) -> np.ndarray:
    """`[leaves]` float32 factor on sigma of each leaf.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("norm.weight", (3,), (None,), 0, "ones", "norm.weight", group="norm"),)
        >>> group_multipliers(specs, {"norm": 0.5}).tolist()
        [0.5]
    """
    return np.array([multipliers.get(spec.group, 1.0) for spec in specs], np.float32)


# --- putting a view together ------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="antithetic")
def _member_keys(
    seed: jax.Array, generation: jax.Array, members: jax.Array, sigma: jax.Array | float, *, antithetic: bool
) -> tuple[Key, jax.Array]:
    keys = jax.vmap(lambda member: noise_key(seed, generation, member, antithetic=antithetic))(members)
    return keys, jnp.asarray(sigma, jnp.float32) * noise_sign(members, antithetic)


def _perturb_many(
    keys: Key,
    scales: jax.Array,
    master: Master,
    *,
    specs: Specs,
    plan: Plan,
    rank: int,
    dtype: Any,
    multipliers: Mapping[str, float],
    scope: str,
) -> View:
    every, specs = specs, tuned_specs(specs, scope)
    layout = make_layout(specs, plan)
    hashes, factors = leaf_hashes(specs), group_multipliers(specs, multipliers)
    leaves = [master[spec.path] for spec in specs]
    dtypes = [view_dtype(dtype, spec.keep_float32) for spec in specs]
    found: dict[int, Any] = {}

    if ids := list(layout.pooled):
        at: dict[str, Any] = {"forms": forms_of(specs, ids), "dtypes": tuple(dtypes[i] for i in ids)}
        outs = pooled_members(keys, tuple(leaves[i] for i in ids), scales, hashes[ids], factors[ids], **at)
        found |= zip(ids, outs, strict=True)
    for i in layout.large:
        at = {"form": specs[i].noise_form, "dtype": dtypes[i]}
        found[i] = large_members(keys, leaves[i], scales, hashes[i], factors[i], **at)
    if ids := list(layout.pooled_factors):
        at = {"forms": forms_of(specs, ids), "rank": rank, "dtypes": tuple(dtypes[i] for i in ids)}
        pairs = pooled_factors(keys, scales, hashes[ids], factors[ids], **at)
        for i, pair in zip(ids, pairs, strict=True):
            found[i] = _factored(leaves[i], dtypes[i], pair, specs[i].noise_form)
    for i in layout.large_factors:
        at = {"form": specs[i].noise_form, "rank": rank, "dtype": dtypes[i]}
        pair = large_factors(keys, scales, hashes[i], factors[i], **at)
        found[i] = _factored(leaves[i], dtypes[i], pair, specs[i].noise_form)
    tuned = {spec.path: found[i] for i, spec in enumerate(specs)}
    return {s.path: tuned[s.path] if s.path in tuned else _shared(master[s.path], s, dtype) for s in every}


def _factored(leaf: MasterLeaf, dtype: Any, factors: tuple[jax.Array, jax.Array], form: tuple[int, int]) -> Factored:
    """The leaf with its factors, of which the one along the cut axis is cut as the leaf is."""
    left, right = factors
    cut = cut_of(leaf, form)
    if cut is not None:
        home = home_of(leaf)
        side = over(None, None, cut.axis)
        left, right = (
            (resharded(left, side, like=home), right) if cut.by_rows else (left, resharded(right, side, like=home))
        )
    return Factored(base_leaf(leaf, dtype), left, right)


def _shared(leaf: MasterLeaf, spec: LeafSpec, dtype: Any) -> Shared:
    return Shared(base_leaf(leaf, view_dtype(dtype, spec.keep_float32)))
