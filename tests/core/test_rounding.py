import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from esopt_jax.core.rounding import (
    Split,
    fields_of,
    join,
    leaf_of,
    leaf_value,
    read_fields,
    round_nearest,
    round_stochastic,
    split,
    write_fields,
)


def floats(bits):
    return lax.bitcast_convert_type(jnp.asarray(bits, jnp.uint32), jnp.float32)


def bits_of(x):
    return np.asarray(lax.bitcast_convert_type(x, jnp.uint16 if x.dtype == jnp.bfloat16 else jnp.uint32))


@pytest.fixture(scope="module")
def patterns():
    """A million random finite bit patterns, and around every tie: zeros, subnormals, powers of 2, largest values."""
    rng = np.random.default_rng(0)
    random = rng.integers(0, 2**32, 1_000_000, dtype=np.uint32)
    edges = [0x0000, 0x0001, 0x007F, 0x0080, 0x3F7F, 0x3F80, 0x3F81, 0x4000, 0x7F7E]
    high = np.array([*edges, *(h | 0x8000 for h in edges), *rng.integers(0, 0x7F00, 1000)], np.uint32)
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = np.concatenate([random, ((high[:, None] << 16) | low).ravel()])
    exponent = (bits >> 23) & 0xFF
    return bits[(exponent < 0xFE)]  # rounding up stays finite


def test_split_round_trip_is_exact(patterns):
    x = floats(patterns)
    halves = split(x)
    assert halves.hi.dtype == jnp.bfloat16 and halves.lo.dtype == jnp.int16
    assert (bits_of(join(halves)) == patterns).all()


def test_split_rounds_half_up(patterns):
    high = bits_of(split(floats(patterns)).hi).astype(np.uint32)
    assert (high == (patterns.astype(np.uint64) + 0x8000) >> 16).all()
    up = floats(np.array([0x3F808000, 0xBF808000], np.uint32))  # exactly between two bfloat16 values
    assert split(up).hi.tolist() == [1.0078125, -1.0078125]
    assert split(up).lo.tolist() == [-32768, -32768]


def test_nearest_is_the_conversion_of_jax(patterns):
    x = floats(patterns)
    assert (bits_of(round_nearest(x)) == bits_of(x.astype(jnp.bfloat16))).all()
    assert round_nearest(floats([0x3F808000, 0x3F818000])).tolist() == [1.0, 1.015625]  # ties to even


def test_stochastic_is_unbiased_and_keeps_what_fits():
    x = jnp.asarray([1.001, -3.14159, 1e-3, 2.5e-38], jnp.float32)
    every = jnp.arange(2**16, dtype=jnp.uint32)[:, None]  # all 2^16 outcomes once: the mean is exact
    rounded = np.asarray(round_stochastic(x, jnp.broadcast_to(every, (2**16, 4))), np.float64)
    assert len(np.unique(rounded[:, 0])) == 2
    assert rounded.mean(axis=0) == pytest.approx(np.asarray(x, np.float64), rel=1e-7)
    fits = jnp.asarray([1.0, -0.0, 0.0078125], jnp.float32)
    assert (
        bits_of(round_stochastic(fits, jnp.full(3, 2**32 - 1, jnp.uint32))) == bits_of(fits.astype(jnp.bfloat16))
    ).all()


@pytest.mark.parametrize("storage", ["float32", "split", "bfloat16"])
def test_fields_are_a_leaf_taken_apart(storage):
    x = jnp.asarray(np.random.default_rng(1).standard_normal((5, 7)), jnp.float32)
    leaf = {"float32": x, "split": split(x), "bfloat16": round_nearest(x)}[storage]
    fields = fields_of(leaf)
    assert all(field.dtype != jnp.bfloat16 for field in fields)
    assert (leaf_value(leaf_of(fields)) == read_fields(fields)).all()
    assert isinstance(leaf_of(fields), Split) == (storage == "split")
    for a, b in zip(write_fields(read_fields(fields), fields), fields, strict=True):
        assert a.dtype == b.dtype and (a == b).all()
    assert (leaf_value(leaf) == x).all() == (storage != "bfloat16")


def test_a_split_is_a_pytree():
    halves = split(jnp.arange(3.0))
    assert [x.dtype.name for x in jax.tree.leaves(halves)] == ["bfloat16", "int16"]
