"""The programs that make members and that update the master, compiled ahead of time for every kind of leaf.

They are few, since equal leaves share one, so that here the whole model is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from esopt_jax.core.layout import Layout, forms_of, make_layout
from esopt_jax.core.master import view_dtype
from esopt_jax.core.members import large_factors, large_members, pooled_factors, pooled_members
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.steps import update_large, update_pool
from esopt_jax.training.plan_programs import NOTHING, QUICKLY, Found, examine, group_of, master_shape, within
from esopt_jax.training.plan_sizing import Sizing
from esopt_jax.types import LeafSpec, Specs


def noise_programs(sizing: Sizing) -> tuple[Found, Found]:
    """The programs that make the members of a pass, and those that update the master, summed over the leaves."""
    es, mesh = sizing.config.es, group_of(sizing)
    specs = tuned_specs(sizing.specs, es.scope)
    layout = make_layout(specs, es.plan)
    with within(mesh):
        return _summed(_making(sizing, specs, layout, mesh)), _summed(_updating(sizing, specs, layout, mesh))


Lower = Callable[[], Any]
"""Traces a program: what it returns has `compile`."""


def _summed(programs: Iterator[tuple[Any, Lower]]) -> Found:
    """All programs together; those with equal keys are compiled once."""
    calls: Counter[Any] = Counter()
    lowers: dict[Any, Lower] = {}
    for key, lower in programs:
        calls[key] += 1
        lowers.setdefault(key, lower)
    total = NOTHING
    for key, lower in lowers.items():
        total = total.combined(examine(lower().compile(QUICKLY)), calls[key])
    return total


def _making(sizing: Sizing, specs: Specs, layout: Layout, mesh: Mesh | None) -> Iterator[tuple[Any, Lower]]:
    es, members = sizing.config.es, sizing.members
    keys, scales = _keys(members), _floats(members)
    dtypes = [view_dtype(sizing.dtype, spec.keep_float32) for spec in specs]

    if ids := layout.pooled:
        at: dict[str, Any] = {"forms": forms_of(specs, ids), "dtypes": tuple(dtypes[i] for i in ids)}
        leaves = tuple(master_shape(specs[i], sizing, mesh) for i in ids)
        yield "pool", lambda: pooled_members.lower(keys, leaves, scales, _words(len(ids)), _floats(len(ids)), **at)
    if few := layout.pooled_factors:
        own: dict[str, Any] = {"forms": forms_of(specs, few), "dtypes": tuple(dtypes[i] for i in few)}
        n = len(few)
        yield "factors", lambda: pooled_factors.lower(keys, scales, _words(n), _floats(n), rank=es.rank, **own)
    for i in layout.large:

        def large(i: int = i) -> Any:
            at = {"form": specs[i].noise_form, "dtype": dtypes[i]}
            return large_members.lower(keys, master_shape(specs[i], sizing, mesh), scales, _words(), _floats(), **at)

        yield _kind(specs[i]), large
    for i in layout.large_factors:

        def factors(i: int = i) -> Any:
            at = {"form": specs[i].noise_form, "rank": es.rank, "dtype": dtypes[i]}
            return large_factors.lower(keys, scales, _words(), _floats(), **at)

        yield _kind(specs[i]), factors


def _updating(sizing: Sizing, specs: Specs, layout: Layout, mesh: Mesh | None) -> Iterator[tuple[Any, Lower]]:
    es = sizing.config.es
    draws = es.population_size // (2 if es.antithetic else 1)
    keys, coefficients = _keys(draws), _floats(draws)
    dither = _keys() if es.rounding == "stochastic" else None
    for index, rank in ((layout.pooled, 0), (layout.pooled_factors, es.rank)):
        if index:

            def pool(index: tuple[int, ...] = index, rank: int = rank) -> Any:
                leaves, n = tuple(master_shape(specs[i], sizing, mesh) for i in index), len(index)
                at = {"forms": forms_of(specs, index), "rank": rank}
                return update_pool.lower(keys, leaves, coefficients, _words(n), _floats(n), dither, **at)

            yield ("pool", rank), pool
    for index, rank in ((layout.large, 0), (layout.large_factors, es.rank)):
        for i in index:

            def large(i: int = i, rank: int = rank) -> Any:
                leaf, at = master_shape(specs[i], sizing, mesh), {"form": specs[i].noise_form, "rank": rank}
                return update_large.lower(keys, leaf, coefficients, _words(), _floats(), dither, **at)

            yield _kind(specs[i]), large


def _kind(spec: LeafSpec) -> tuple[Any, ...]:
    """What leaves that share a program have in common."""
    return spec.noise_form, spec.shape, spec.axes, spec.keep_float32


def _keys(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype)


def _words(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.uint32)


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)
