"""Bins filled item by item along a heuristic, many random packings of an instance at once."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from esopt_jax.search.tasks.ants import colony_draws, colony_keys

_State = tuple[jax.Array, jax.Array, jax.Array]
"""How well each item goes with the open bin; draws of the items left, -inf for the others; room in the open bin."""


@partial(jax.jit, static_argnames=("packings",))
def fewest_bins(
    seeds: jax.Array, attraction: jax.Array, demands: jax.Array, capacity: jax.Array, *, packings: int = 200
) -> jax.Array:
    """The packing of each instance into the fewest bins, as the bin of every item, `[instances, n]` int32, from 0.

    Each packing fills one bin after the other. A bin starts with a random item; then the one that goes best with those
    in the bin follows, by the mean attraction to them, until none that is left fits.

    Args:
        seeds: `[instances]` integers.
        attraction: `[instances, n, n]` floats above 0.
        demands: `[instances, n]` integers above 0.
        capacity: `[]`; at least the largest demand.
        packings: Tries per instance.
    """
    fewest = partial(_fewest, capacity=capacity, packings=packings)
    # One instance at a time: its 200 packings fill the machine, and more of them no longer fit into its caches.
    bins: jax.Array = jax.lax.map(lambda instance: fewest(*instance), (colony_keys(seeds), attraction, demands))
    return bins


def _fewest(
    key: jax.Array, attraction: jax.Array, demands: jax.Array, *, capacity: jax.Array, packings: int
) -> jax.Array:
    count = len(demands)
    draws = colony_draws(key, jnp.array(0), (packings, count), attraction.dtype)
    items, opens = jax.vmap(_pack, (0, None, None, None), out_axes=1)(draws, attraction, demands, capacity)
    best = opens.sum(axis=0).argmin()
    return jnp.zeros(count, jnp.int32).at[items[:, best]].set(jnp.cumsum(opens[:, best], dtype=jnp.int32) - 1)


def _pack(
    draws: jax.Array, attraction: jax.Array, demands: jax.Array, capacity: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Items in the order in which they are packed, `[n]` int32, and whether each opens a bin.

    One draw per item does for all random starts: among the items left, that with the largest draw is any of them with
    equal chance, since what was packed before says nothing about the order of their draws.
    """
    places = jnp.arange(len(demands), dtype=jnp.int32)

    def step(state: _State, _: None) -> tuple[_State, tuple[jax.Array, jax.Array]]:
        affinity, lots, room = state
        # Affinities are above 0 and come before all draws, which are below -1; the sum ranks as the mean does.
        rank = jnp.where((demands <= room) & (lots > -jnp.inf), affinity, lots)
        top = rank.max()
        item = jnp.where(rank == top, places, len(demands)).min()
        opens = top < 0
        affinity = jnp.where(opens, 0, affinity) + attraction[item]
        room = jnp.where(opens, capacity, room) - demands[item]
        return (affinity, jnp.where(places == item, -jnp.inf, lots), room), (item, opens)

    start = (jnp.zeros_like(draws), draws - 2, jnp.zeros_like(capacity))
    _, packed = jax.lax.scan(step, start, None, length=len(demands))
    return packed
