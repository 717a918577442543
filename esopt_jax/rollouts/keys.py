"""Randomness of a rollout: which key samples which token, and which seed resets which episode.

A row's key follows from what the row plays, never from where it sits in a batch, so a reply does not depend on the
other rows, their number or their order. Members share their keys under common random numbers: two members then differ
by their weights alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from esopt_jax.core.normals import threefry2x32
from esopt_jax.types import Key, Purpose


@struct.dataclass
class Slots:
    """What each row plays: `member`, `case`, `episode` and `turn`, int32 arrays of one shape.

    `case` is the index of the task in its split, `episode` the repeat of that task.
    """

    member: jax.Array
    case: jax.Array
    episode: jax.Array
    turn: jax.Array


def row_keys(
    seed: jax.Array | int, generation: jax.Array | int, slots: Slots, *, common_random_numbers: bool
) -> jax.Array:
    """Typed keys of the shape of `slots`, one per row and turn.

    Fold-ins: purpose, generation, case, episode, turn, then the member unless random numbers are common.

    Example:
        >>> turn = jnp.zeros((2, 1), jnp.int32)
        >>> slots = Slots(member=jnp.array([[0], [1]]), case=turn, episode=turn, turn=turn)
        >>> keys = row_keys(0, 0, slots, common_random_numbers=True)
        >>> bool(keys[0, 0] == keys[1, 0])
        True
    """
    root = _root(seed, Purpose.SAMPLING, generation)
    parts = [slots.case, slots.episode, slots.turn] + ([] if common_random_numbers else [slots.member])
    return _fold_all(root, parts)


def environment_seeds(
    seed: int,
    generation: int,
    case: np.ndarray,
    episode: np.ndarray,
    member: np.ndarray,
    *,
    common_random_numbers: bool,
) -> list[int]:
    """Seeds in 0 .. 2^32-1 for `Environment.reset`, one per row of the `[N]` integer arrays."""
    parts = [jnp.asarray(p, jnp.int32) for p in ([case, episode] if common_random_numbers else [case, episode, member])]
    return np.asarray(_environment_words(jnp.uint32(seed), jnp.int32(generation), parts)).tolist()


def token_bits(keys: jax.Array, position: jax.Array, ids: jax.Array) -> jax.Array:
    """Random words of token `ids: [..., K]` for rows `keys: [...]` at `position: [...]`; `[..., K]` uint32.

    Word `id` of `jax.random.bits(fold_in(key, position), [V])`, computed for the wanted ids only: a token's noise is
    the same whichever tokens survive a filter.
    """
    words = threefry2x32(_words(keys), position.astype(jnp.uint32))
    first, second = threefry2x32(tuple(w[..., None] for w in words), ids.astype(jnp.uint32))
    return first ^ second


@jax.jit
def _environment_words(seed: jax.Array, generation: jax.Array, parts: list[jax.Array]) -> jax.Array:
    return jax.vmap(jax.random.bits)(_fold_all(_root(seed, Purpose.ENVIRONMENT, generation), parts))


def _root(seed: jax.Array | int, purpose: int, generation: jax.Array | int) -> Key:
    key = jax.random.key(jnp.asarray(seed, jnp.uint32), impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, purpose), generation)


def _fold_all(root: Key, parts: list[jax.Array]) -> jax.Array:
    """`fold_in` of each of `parts` in turn, elementwise."""
    words = _words(root)
    for part in parts:  # the block (0, n) under a key is what fold_in(key, n) returns
        words = threefry2x32(words, part.astype(jnp.uint32))
    return jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl="threefry2x32")


def _words(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    data = jax.random.key_data(keys)
    return data[..., 0], data[..., 1]
