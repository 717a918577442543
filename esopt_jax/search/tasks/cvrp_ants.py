"""Ant colonies that look for short delivery routes, all ants of all instances at once."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from esopt_jax.search.tasks.ants import choose, colony_draws, colony_keys

_FLOOR = 1e-10


class _Colonies(NamedTuple):
    pheromone: jax.Array
    shortest: jax.Array
    best: jax.Array


class _Walk(NamedTuple):
    turn: jax.Array
    here: jax.Array
    free: jax.Array
    room: jax.Array
    stops: jax.Array


@partial(jax.jit, static_argnames=("ants", "iterations"))
def best_routes(
    seeds: jax.Array,
    attraction: jax.Array,
    distances: jax.Array,
    demands: jax.Array,
    capacity: jax.Array,
    *,
    ants: int = 30,
    iterations: int = 100,
    decay: float = 0.9,
) -> jax.Array:
    """The shortest routes that the ants of each instance find, `[instances, 2 n]` int32.

    A row lists the stops after the start in the depot, 0, and is filled up with zeros: each return to the depot empties
    the vehicle. In every iteration each ant goes on in proportion to pheromone times attraction until all customers
    are served. Then the pheromone fades by `decay`, and every ant leaves 1 / length on its edges, in their direction.

    Args:
        seeds: `[instances]` integers.
        attraction: `[instances, n + 1, n + 1]` floats above 0, whose dtype is that of the whole loop.
        distances: `[instances, n + 1, n + 1]`, same dtype, with a diagonal of 0.
        demands: `[instances, n + 1]`, same dtype, 0 for the depot.
        capacity: `[]`, same dtype; at least the largest demand.
        ants: In a colony.
        iterations: Of each colony.
        decay: What stays of the pheromone.
    """
    count = attraction.shape[-1]
    turns = 2 * (count - 1)
    keys = colony_keys(seeds)

    def iterate(state: _Colonies, iteration: jax.Array) -> tuple[_Colonies, None]:
        draws = jax.vmap(lambda key: colony_draws(key, iteration, (turns, ants), attraction.dtype))(keys)
        stops = _serve(jnp.moveaxis(draws, 0, 1), state.pheromone * attraction, demands, capacity)
        return jax.vmap(partial(_mark, decay=decay))(state, jnp.moveaxis(stops, 0, 1), distances), None

    none_yet = jnp.full(len(keys), jnp.inf, attraction.dtype)
    start = _Colonies(jnp.ones_like(attraction), none_yet, jnp.zeros((len(keys), turns), jnp.int32))
    state, _ = jax.lax.scan(iterate, start, jnp.arange(iterations))
    return state.best


def _serve(draws: jax.Array, attraction: jax.Array, demands: jax.Array, capacity: jax.Array) -> jax.Array:
    """Stops of every ant, `[turns, instances, ants]` int32, from `draws` of that shape.

    One loop owns the ants of all instances and ends with the last of them: a loop for each would run just as long.
    """
    ants = draws.shape[1:]
    of_instance = jnp.arange(ants[0])[:, None]

    def one(
        uniform: jax.Array, weights: jax.Array, here: jax.Array, free: jax.Array, room: jax.Array, demand: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """One step of one ant: next stop, customers left, room left."""
        fits = (free & (demand <= room)).at[0].set((here != 0) | ~free.any())
        there = choose(uniform, weights, fits)
        free = free & (jnp.arange(len(free)) != there)
        return there, free, jnp.where(there == 0, capacity, room - demand[there])

    every = jax.vmap(jax.vmap(one, (0, 0, 0, 0, 0, None)))

    def unserved(walk: _Walk) -> jax.Array:
        return walk.free.any() & (walk.turn < len(draws))

    def step(walk: _Walk) -> _Walk:
        weights = attraction[of_instance, walk.here]
        there, free, room = every(draws[walk.turn], weights, walk.here, walk.free, walk.room, demands)
        return _Walk(walk.turn + 1, there, free, room, walk.stops.at[walk.turn].set(there))

    return jax.lax.while_loop(
        unserved,
        step,
        _Walk(
            turn=jnp.array(0),
            here=jnp.zeros(ants, jnp.int32),
            free=jnp.broadcast_to(jnp.arange(attraction.shape[-1]) != 0, (*ants, attraction.shape[-1])),
            room=jnp.full(ants, capacity),
            stops=jnp.zeros(draws.shape, jnp.int32),
        ),
    ).stops


def _mark(colony: _Colonies, stops: jax.Array, distances: jax.Array, *, decay: float) -> _Colonies:
    """One colony after all its ants, whose `stops` are `[turns, ants]`, are back in the depot."""
    leaving = jnp.concatenate([jnp.zeros_like(stops[:1]), stops])
    reached = jnp.concatenate([stops, jnp.zeros_like(stops[:1])])  # a last customer is followed by the depot
    lengths = distances[leaving, reached].sum(axis=0)
    gift = jnp.broadcast_to(1 / lengths, leaving.shape)
    pheromone = jnp.maximum((colony.pheromone * decay).at[leaving, reached].add(gift), _FLOOR)
    ant = lengths.argmin()
    shorter = lengths[ant] < colony.shortest
    best = jnp.where(shorter, stops[:, ant], colony.best)
    return _Colonies(pheromone, jnp.minimum(lengths[ant], colony.shortest), best)
