import hashlib

import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.digest import digest
from esopt_jax.core.rounding import round_nearest, split


@pytest.fixture(scope="module")
def w():
    return np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)


def changed(w, **other):
    return digest({"w": jnp.asarray(w), **other})


def mix(x):
    x = np.asarray(x, np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def by_hand(leaves):
    text = b""
    for path, (bits, kind) in sorted(leaves.items()):
        total = int(mix(bits.ravel() ^ mix(np.arange(bits.size))).astype(np.uint64).sum(dtype=np.uint64))
        text += f"{path}|{bits.shape}|{kind}|{total:016x}\n".encode()
    return hashlib.blake2s(text, digest_size=16).hexdigest()


@pytest.mark.parametrize(
    "shape", [(7,), (6, 10), (3, 5, 7), (65536,), (65537,), (200_003,), (3, 70_000), (600, 300), ()]
)
def test_equals_its_definition(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    assert digest({"b": jnp.asarray(x)}) == by_hand(
        {"b": (x.view(np.uint32) if shape else x.reshape(()).view(np.uint32), "float32")}
    )


def test_bfloat16_bits_and_several_leaves(w):
    low = round_nearest(jnp.asarray(w))
    bits = np.asarray(low).view(np.uint16).astype(np.uint32)
    assert digest({"z": jnp.asarray(w), "a": low}) == by_hand(
        {"z": (w.view(np.uint32), "float32"), "a": (bits, "bfloat16")}
    )


def test_golden():
    tree = {"a": jnp.arange(12, dtype=jnp.float32).reshape(3, 4), "b": jnp.arange(5, dtype=jnp.bfloat16)}
    assert digest(tree) == "0956f8f94e9853601ad10bb73a66d178"


def test_split_has_the_digest_of_its_value(w):
    assert digest({"w": split(jnp.asarray(w))}) == changed(w)


def test_order_of_leaves_is_no_matter(w):
    a, b = jnp.asarray(w), jnp.asarray(w[:2])
    assert digest({"a": a, "b": b}) == digest({"b": b, "a": a})


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.T,
        lambda w: w[::-1],
        lambda w: w[:, ::-1],
        lambda w: w.reshape(10, 6),
        lambda w: np.roll(w, 1),
        lambda w: np.nextafter(w, np.float32(9)),
        lambda w: np.concatenate([w[1:2], w[:1], w[2:]]),
    ],
    ids=["transpose", "rows reversed", "columns reversed", "reshape", "roll", "last bits", "rows swapped"],
)
def test_sees(w, change):
    assert changed(np.ascontiguousarray(change(w))) != changed(w)


def test_sees_single_bits_and_swaps_of_two_elements(w):
    seen = {changed(w)}
    for bit in range(32):
        x = w.copy()
        x.view(np.uint32)[2, 3] ^= np.uint32(1 << bit)
        seen.add(changed(x))
    x = w.copy()
    x[0, 0], x[5, 9] = w[5, 9], w[0, 0]
    seen.add(changed(x))
    assert len(seen) == 34


def test_sees_swapped_leaves_paths_and_types(w):
    a, b = jnp.asarray(w), jnp.asarray(w[::-1].copy())
    assert digest({"a": a, "b": b}) != digest({"a": b, "b": a})
    assert digest({"a": a}) != digest({"b": a})
    zeros = jnp.zeros(4)
    assert digest({"a": zeros}) != digest({"a": zeros.astype(jnp.bfloat16)})


def test_sees_the_sign_of_zero():
    assert digest({"a": jnp.zeros(3)}) != digest({"a": -jnp.zeros(3)})
