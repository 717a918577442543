"""Keys and noise of a leaf: `eps(seed, generation, member, leaf)` is a pure function (noise specification 1).

A member's key is `key(seed)` with purpose, generation and member folded in; a leaf's key folds in a hash of its
canonical path, and the two factors of a low-rank perturbation fold in 0 and 1. Nothing depends on the order of leaves,
on the size of the population or on how it is spread over devices. Keys are always threefry2x32: `fold_in` of that
generator ignores `jax_threefry_partitionable`, and draws use the counters of `core.normals`, so that no global flag
changes a bit.
"""

from __future__ import annotations

import hashlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from esopt_jax.core.normals import LANES, normal_rows, threefry2x32, tile_count
from esopt_jax.errors import EsoptError
from esopt_jax.types import Key, LeafSpec, Purpose, Specs

IMPL = "threefry2x32"


def leaf_hash(path: str) -> int:
    """32-bit identity of a leaf: blake2s of its canonical path, 4 bytes, little-endian.

    Example:
        >>> leaf_hash("norm.weight")
        3999289624
    """
    return int.from_bytes(hashlib.blake2s(path.encode(), digest_size=4).digest(), "little")


def leaf_hashes(specs: Specs) -> np.ndarray:
    """`leaf_hash` of every leaf: `[leaves]` uint32, in the order of `specs`.

    Example:
        >>> leaf_hashes((LeafSpec("norm.weight", (3,), (None,), 0, "ones", "norm.weight"),)).tolist()
        [3999289624]
    """
    return np.array([leaf_hash(spec.path) for spec in specs], np.uint32)


def check_collisions(specs: Specs) -> None:
    """Refuse a table in which two leaves would share their noise, or a leaf has more pairs than counters.

    Raises:
        EsoptError: two paths are equal or have the same `leaf_hash`, or a leaf is too large for a 32-bit counter.

    Example:
        >>> check_collisions((LeafSpec("norm.weight", (3,), (None,), 0, "ones", "norm.weight"),))
    """
    seen: dict[int, str] = {}
    for spec in specs:
        other = seen.setdefault(leaf_hash(spec.path), spec.path)
        if other != spec.path or sum(s.path == spec.path for s in specs) > 1:
            raise EsoptError(f"leaves {other!r} and {spec.path!r} would draw the same noise; rename one of them")
        rows, columns = spec.noise_form
        if rows * tile_count(columns) * LANES >= 2**32:
            raise EsoptError(
                f"leaf {spec.path!r} has shape {spec.shape}; noise counters end at 2^32 pairs: split the leaf"
            )


def noise_key(
    seed: jax.Array | int,
    generation: jax.Array | int,
    member: jax.Array | int,
    *,
    purpose: int = Purpose.NOISE,
    antithetic: bool = False,
) -> Key:
    """The key of one member in one generation.

    Args:
        seed: `[]` in 0 .. 2^32-1; may be traced, as may the next two.
        generation: `[]`, 0-based.
        member: `[]`, index in the population.
        purpose: one of `Purpose`, the first fold-in.
        antithetic: members 2k and 2k+1 share a key; `noise_sign` tells them apart.

    Returns:
        `[]` typed threefry2x32 key.

    Example:
        >>> even, odd = (noise_key(0, 3, m, antithetic=True) for m in (4, 5))
        >>> bool(even == odd), bool(noise_key(0, 3, 4) == noise_key(0, 3, 5))
        (True, False)
    """
    member = jnp.uint32(member)
    key: Key = _fold_in(jnp.uint32(seed), jnp.uint32(generation), member // 2 if antithetic else member, purpose)
    return key


@partial(jax.jit, static_argnames="purpose")
def _fold_in(seed: jax.Array, generation: jax.Array, member: jax.Array, purpose: int) -> Key:
    key = jax.random.key(seed, impl=IMPL)
    for data in (purpose, generation, member):
        key = jax.random.fold_in(key, data)
    return key


def noise_sign(member: jax.Array | int, antithetic: bool) -> jax.Array:
    """The sign of a member's noise, float32: -1 for odd members of an antithetic population, else +1.

    Example:
        >>> noise_sign(jnp.arange(4), True).tolist()
        [1.0, -1.0, 1.0, -1.0]
    """
    odd = jnp.asarray(member, jnp.uint32) % 2
    return 1.0 - 2.0 * odd.astype(jnp.float32) if antithetic else jnp.ones(odd.shape, jnp.float32)


@jax.jit
def leaf_words(keys: Key, hashes: jax.Array | np.ndarray | np.uint32) -> jax.Array:
    """Raw words of the leaf keys of many members.

    Args:
        keys: `[M]` typed threefry2x32 keys of members.
        hashes: `[...]` uint32 of `leaf_hashes`.

    Returns:
        `[..., M, 2]` uint32.
    """
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) or str(jax.random.key_impl(keys)) != IMPL:
        raise EsoptError(f"key has dtype {keys.dtype}; noise needs typed threefry2x32 keys: use noise_key(...)")
    return _fold(jax.random.key_data(keys), jnp.asarray(hashes, jnp.uint32)[..., None])


@jax.jit
def factor_words(words: jax.Array) -> jax.Array:
    """Words of the left and right factor of leaf keys: `[..., 2]` -> `[..., 2 (left, right), 2]` uint32."""
    return _fold(words[..., None, :], jnp.arange(2, dtype=jnp.uint32))


def _fold(words: jax.Array, data: jax.Array) -> jax.Array:
    """`jax.random.fold_in` on raw words, which is one threefry block; elementwise, so that it compiles quickly."""
    return jnp.stack(threefry2x32((words[..., 0], words[..., 1]), data), axis=-1)


@partial(jax.jit, static_argnames="spec")
def sample_noise(key: Key, spec: LeafSpec) -> jax.Array:
    """Full-rank noise of one leaf.

    Args:
        key: `[]` typed threefry2x32 key of the member (`noise_key`).
        spec: the leaf.

    Returns:
        float32 standard normals of `spec.shape`.

    Example:
        >>> spec = LeafSpec("w", (3, 2), (None, None), 1, "normal", "w")
        >>> sample_noise(noise_key(0, 0, 0), spec).shape
        (3, 2)
    """
    words = leaf_words(key[None], np.uint32(leaf_hash(spec.path)))[0]
    rows, columns = spec.noise_form
    noise: jax.Array = normal_rows(words, 0, rows, columns)
    return noise.reshape(spec.shape)


@partial(jax.jit, static_argnames=("spec", "rank"))
def sample_factors(key: Key, spec: LeafSpec, *, rank: int) -> tuple[jax.Array, jax.Array]:
    """Factors of the low-rank noise of one matrix leaf: `eps = leftᵀ right / sqrt(rank)`.

    The rank leads, so that a draw is not padded from `rank` to 256 columns.

    Args:
        key: `[]` typed threefry2x32 key of the member (`noise_key`).
        spec: a leaf with a matrix form `[rows, columns]`.
        rank: R.

    Returns:
        left `[R, rows]` and right `[R, columns]`, float32 standard normals.

    Raises:
        EsoptError: the leaf is a vector.

    Example:
        >>> spec = LeafSpec("w", (3, 2), (None, None), 1, "normal", "w")
        >>> [x.shape for x in sample_factors(noise_key(0, 0, 0), spec, rank=4)]
        [(4, 3), (4, 2)]
    """
    if not spec.is_matrix:
        raise EsoptError(f"leaf {spec.path!r} has no matrix form; its noise is full rank: use sample_noise")
    left, right = factor_words(leaf_words(key[None], np.uint32(leaf_hash(spec.path)))[0])
    rows, columns = spec.noise_form
    return normal_rows(left, 0, rank, rows), normal_rows(right, 0, rank, columns)
