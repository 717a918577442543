"""Exact integer rounding between float32 and 16-bit storage.

Roundings are integer arithmetic on the bits: fused with a draw, XLA:CPU's own conversion costs three to ten times as
much, and its dynamic updates of bfloat16 arrays convert the whole array. Loops therefore carry `fields`: the integer
or float32 arrays that a leaf is made of. Weights are finite.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

Fields: TypeAlias = tuple[jax.Array, ...]
"""`(float32,)`, `(uint16 bits of bfloat16,)` or `(uint16 bits of hi, int16 lo)`, all of one shape."""


@struct.dataclass
class Split:
    """A float32 array in two 16-bit halves: `bits(x) = bits(hi) * 2^16 + lo`.

    Attributes:
        hi: bfloat16, `x` rounded half away from zero.
        lo: int16, what rounding dropped, in units of the last float32 place.
    """

    hi: jax.Array
    lo: jax.Array


MasterLeaf: TypeAlias = "jax.Array | Split"


@jax.jit
def split(x: jax.Array) -> Split:
    """The exact halves of a float32 array.

    `hi` rounds half up in magnitude, not half to even: only then does the rest always fit an int16.

    Example:
        >>> halves = split(jnp.float32(1.001))
        >>> float(halves.hi), bool(join(halves) == jnp.float32(1.001))
        (1.0, True)
    """
    high, low = _split_bits(x)
    return Split(hi=lax.bitcast_convert_type(high, jnp.bfloat16), lo=low)


@jax.jit
def join(halves: Split) -> jax.Array:
    """The float32 array that `split` took apart, bit for bit.

    Example:
        >>> bool(join(split(jnp.float32(1.001))) == jnp.float32(1.001))
        True
    """
    return _join_bits(_bits16(halves.hi), halves.lo)


@jax.jit
def round_nearest(x: jax.Array) -> jax.Array:
    """float32 rounded to bfloat16, ties to even; equals `astype(bfloat16)` for finite values.

    Example:
        >>> float(round_nearest(jnp.float32(1.001)))
        1.0
    """
    return lax.bitcast_convert_type(_nearest_bits(x), jnp.bfloat16)


def round_stochastic(x: jax.Array, random: jax.Array) -> jax.Array:
    """float32 rounded to one of the two neighbouring bfloat16 values, unbiased.

    The value moves away from zero with probability equal to the dropped fraction; a representable value stays.

    Args:
        x: float32.
        random: uint32 of the same shape; its low 16 bits are used.

    Returns:
        bfloat16 of the same shape.

    Example:
        >>> x = jnp.full(2, 1.0 + 2**-8)
        >>> round_stochastic(x, jnp.array([0, 0xFFFF], jnp.uint32)).tolist()
        [1.0, 1.0078125]
    """
    return lax.bitcast_convert_type(_stochastic_bits(x, random), jnp.bfloat16)


# --- fields -----------------------------------------------------------------------------------------------------------


def fields_of(leaf: MasterLeaf) -> Fields:
    """The arrays a loop slices and updates in place of `leaf`; `leaf_of` is the inverse."""
    if isinstance(leaf, Split):
        return _bits16(leaf.hi), leaf.lo
    return (_bits16(leaf),) if leaf.dtype == jnp.bfloat16 else (leaf,)


def leaf_of(fields: Fields) -> MasterLeaf:
    """The leaf whose `fields_of` these are."""
    first = from_bits(fields[0])
    return Split(hi=first, lo=fields[1]) if len(fields) == 2 else first


def read_fields(fields: Fields) -> jax.Array:
    """The float32 value that `fields` store."""
    if len(fields) == 2:
        return _join_bits(*fields)
    if fields[0].dtype == jnp.uint16:
        return lax.bitcast_convert_type(fields[0].astype(jnp.uint32) << 16, jnp.float32)
    return fields[0]


def write_fields(x: jax.Array, like: Fields, random: jax.Array | None = None) -> Fields:
    """`x`, float32, stored in the format of `like`; bfloat16 rounds stochastically where `random` is given."""
    if len(like) == 2:
        return _split_bits(x)
    if like[0].dtype == jnp.uint16:
        return (_nearest_bits(x) if random is None else _stochastic_bits(x, random),)
    return (x,)


def to_bits(x: jax.Array, dtype: Any) -> jax.Array:
    """float32 as what a loop may carry: itself, or the uint16 bits of its bfloat16 rounding (ties to even)."""
    return _nearest_bits(x) if jnp.dtype(dtype) == jnp.bfloat16 else x


def from_bits(bits: jax.Array) -> jax.Array:
    """The float32 or bfloat16 array of `to_bits`."""
    return lax.bitcast_convert_type(bits, jnp.bfloat16) if bits.dtype == jnp.uint16 else bits


def leaf_shape(leaf: Any) -> tuple[int, ...]:
    """Shape of a leaf of weights or of a master."""
    return tuple(leaf.hi.shape if isinstance(leaf, Split) else leaf.shape)


def leaf_value(leaf: MasterLeaf) -> jax.Array:
    """The float32 value of a leaf of a master."""
    return read_fields(fields_of(leaf))


def _bits16(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.uint16)


def _split_bits(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    bits = lax.bitcast_convert_type(x, jnp.int32)
    high = (bits + 0x8000) >> 16
    return high.astype(jnp.uint16), (bits - (high << 16)).astype(jnp.int16)


def _join_bits(high: jax.Array, low: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type((high.astype(jnp.int32) << 16) + low.astype(jnp.int32), jnp.float32)


def _nearest_bits(x: jax.Array) -> jax.Array:
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(jnp.uint16)


def _stochastic_bits(x: jax.Array, random: jax.Array) -> jax.Array:
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return ((bits + (random & np.uint32(0xFFFF))) >> 16).astype(jnp.uint16)
