"""Ant colonies that look for short tours, all ants of all instances at once."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from esopt_jax.search.tasks.ants import choose, colony_draws, colony_keys

_State = tuple[jax.Array, jax.Array, jax.Array]
"""Pheromone, length of the shortest tour so far, that tour."""


@partial(jax.jit, static_argnames=("ants", "iterations"))
def best_tours(
    seeds: jax.Array,
    attraction: jax.Array,
    distances: jax.Array,
    *,
    ants: int = 30,
    iterations: int = 100,
    decay: float = 0.9,
) -> jax.Array:
    """The shortest tour that the ants of each instance find, `[instances, n]` int32.

    In every iteration each ant starts in a random city and goes on in proportion to pheromone times attraction. Then
    the pheromone fades by `decay`, and every ant leaves 1 / length on its edges, in both directions.

    Args:
        seeds: `[instances]` integers.
        attraction: `[instances, n, n]` floats above 0, whose dtype is that of the whole loop.
        distances: `[instances, n, n]`, same dtype.
        ants: In a colony.
        iterations: Of each colony.
        decay: What stays of the pheromone.
    """
    colony = partial(_colony, ants=ants, iterations=iterations, decay=decay)
    return jax.vmap(colony)(colony_keys(seeds), attraction, distances)


def _colony(
    key: jax.Array, attraction: jax.Array, distances: jax.Array, *, ants: int, iterations: int, decay: float
) -> jax.Array:
    count = len(distances)

    def iterate(state: _State, iteration: jax.Array) -> tuple[_State, None]:
        pheromone, shortest, best = state
        draws = colony_draws(key, iteration, (count, ants), attraction.dtype)
        tours = _walk(draws, pheromone * attraction)
        onward = jnp.roll(tours, -1, axis=0)
        lengths = distances[tours, onward].sum(axis=0)
        gift = jnp.broadcast_to(1 / lengths, tours.shape)
        pheromone = (pheromone * decay).at[tours, onward].add(gift).at[onward, tours].add(gift)
        ant = lengths.argmin()
        shorter = lengths[ant] < shortest
        best = jnp.where(shorter, tours[:, ant], best)
        return (pheromone, jnp.minimum(lengths[ant], shortest), best), None

    start = (jnp.ones_like(attraction), jnp.array(jnp.inf, attraction.dtype), jnp.arange(count, dtype=jnp.int32))
    (_, _, best), _ = jax.lax.scan(iterate, start, jnp.arange(iterations))
    return best


def _walk(draws: jax.Array, attraction: jax.Array) -> jax.Array:
    """One tour for each ant, `[n, ants]` int32, from `draws` `[n, ants]`."""
    count = len(draws)
    first = jnp.minimum(draws[0] * count, count - 1).astype(jnp.int32)
    cities = jnp.arange(count)

    def step(state: tuple[jax.Array, jax.Array], uniform: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        here, free = state
        there = jax.vmap(choose)(uniform, attraction[here], free)
        return (there, free & (cities != there[:, None])), there

    _, rest = jax.lax.scan(step, (first, cities != first[:, None]), draws[1:])
    return jnp.concatenate([first[None], rest])
