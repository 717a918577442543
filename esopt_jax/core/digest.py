"""A digest of weights that does not depend on how they are sharded or in which order they are read.

Per leaf: the sum over elements of `mix(bits xor mix(index))` modulo 2^64, with the logical index. A plain sum of bits
would not see a permutation or a transpose; this one does, and every changed bit. Leaves are then hashed with their
paths and shapes. Not cryptographic: it finds accidents.
"""

from __future__ import annotations

import hashlib
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.placement import gathered
from esopt_jax.core.rounding import MasterLeaf, Split, join, leaf_shape
from esopt_jax.types import Master

_WIDTH = 1 << 16


def digest(master: Master) -> str:
    """32 hex digits over paths, shapes, types and bits of all leaves.

    The bits of a `Split` are those of the float32 value it stands for, so that a `split` and a `float32` master with
    equal values have equal digests. 0 and -0 differ.

    Args:
        master: path -> float32 or bfloat16 array or `Split`.

    Example:
        >>> a = digest({"w": jnp.arange(4.0).reshape(2, 2)})
        >>> a == digest({"w": jnp.arange(4.0).reshape(2, 2).T})
        False
    """
    sums = {path: _leaf_sums(leaf) for path, leaf in master.items()}  # all dispatched before any is read
    found = hashlib.blake2s(digest_size=16)
    for path in sorted(master):
        halves = np.asarray(sums[path], np.uint64).reshape(-1, 2).sum(axis=0, dtype=np.uint64)
        total = (int(halves[0]) + (int(halves[1]) << 16)) % 2**64
        kind = "bfloat16" if not isinstance(master[path], Split) and master[path].dtype == jnp.bfloat16 else "float32"
        found.update(f"{path}|{leaf_shape(master[path])}|{kind}|{total:016x}\n".encode())
    return found.hexdigest()


@jax.jit
def _leaf_sums(leaf: MasterLeaf) -> jax.Array:
    """Sums of the low and of the high 16 bits of every element's hash, `[..., 2]` uint32 over the leading axes.

    The halves of at most 2^16 elements cannot overflow 32 bits; the host adds the rest. Reducing trailing axes leaves
    a sharded leaf where it is.
    """
    wide = bool(leaf_shape(leaf)) and leaf_shape(leaf)[-1] > _WIDTH
    leaf = gathered(leaf) if wide else leaf
    x = join(leaf) if isinstance(leaf, Split) else leaf
    bits = lax.bitcast_convert_type(x, jnp.uint16 if x.dtype == jnp.bfloat16 else jnp.uint32).astype(jnp.uint32)
    index = jnp.zeros(bits.shape, jnp.uint32)
    for axis in range(bits.ndim):
        stride = math.prod(bits.shape[axis + 1 :])
        index = index + lax.broadcasted_iota(jnp.uint32, bits.shape, axis) * np.uint32(stride)
    mixed = _mix(bits ^ _mix(index))
    halves = [mixed & jnp.uint32(0xFFFF), mixed >> 16]
    if wide:
        pad = [(0, 0)] * (bits.ndim - 1) + [(0, -bits.shape[-1] % _WIDTH)]
        halves = [jnp.pad(half, pad).reshape(*bits.shape[:-1], -1, _WIDTH) for half in halves]
    reduced = _trailing(halves[0].shape)
    return jnp.stack([half.sum(axis=reduced, dtype=jnp.uint32) for half in halves], axis=-1)


def _trailing(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The most trailing axes that hold at most 2^16 elements together."""
    first = len(shape)
    while first and math.prod(shape[first - 1 :]) <= _WIDTH:
        first -= 1
    return tuple(range(first, len(shape)))


def _mix(x: jax.Array) -> jax.Array:
    """A bijection of 32 bits in which every input bit moves every output bit: the finaliser of MurmurHash3."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
