import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core import layout, members, steps
from esopt_jax.core.layout import make_layout, make_pool
from esopt_jax.core.noise import leaf_hash, leaf_words, noise_key
from esopt_jax.core.normals import normal_rows
from esopt_jax.core.rounding import round_nearest, split
from esopt_jax.types import LeafSpec

FORM, RANK = (40, 300), 3
KEYS = jnp.stack([noise_key(0, 0, m) for m in range(3)])
HASH = np.uint32(leaf_hash("w"))
SCALES = jnp.array([0.1, -0.2, 0.0123])


def test_every_leaf_is_in_one_place(specs):
    for plan in ("full", "low_rank"):
        found = make_layout(specs, plan)
        places = found.pooled + found.pooled_factors + found.large + found.large_factors
        assert sorted(places) == list(range(len(specs)))
        low_rank = found.pooled_factors + found.large_factors
        assert set(low_rank) == {i for i, s in enumerate(specs) if plan == "low_rank" and s.is_matrix}
        assert {specs[i].path for i in found.large + found.large_factors} == {"large.weight"}


def test_a_pool_is_bounded():
    table = tuple(LeafSpec(f"w{i}", (256, 256), (None, None), 1, "normal", f"w{i}") for i in range(40))
    found = make_layout(table, "full")
    assert len(found.pooled) == layout.POOL_LIMIT // 2**16
    assert len(found.large) == 40 - len(found.pooled)


def test_pool_counters_are_those_of_rows():
    pool = make_pool(((5, 700), FORM, (1, 7)))
    words = leaf_words(KEYS[0][None], np.array([1, 2, 3], np.uint32))[:, 0]
    flat = layout.pool_noise(words, pool, live=jnp.array(True))
    for part, word, (rows, columns) in zip(pool.cut(flat), words, ((5, 700), FORM, (1, 7)), strict=True):
        assert (part.reshape(rows, columns) == normal_rows(word, 0, rows, columns)).all()
    assert (layout.pool_noise(words, pool, live=jnp.array(False)) == 0).all()


def leaves():
    x = jnp.asarray(np.random.default_rng(0).standard_normal(FORM), jnp.float32)
    return {"float32": x, "split": split(x), "bfloat16": round_nearest(x)}


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: np.asarray(x).tobytes() == np.asarray(y).tobytes(), a, b))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pooled_and_large_leaves_have_the_same_members(dtype, monkeypatch):
    """A leaf that lands in the other place, because a pool is full, draws the same."""
    monkeypatch.setattr(members, "block_rows", lambda form: 11)  # four blocks, the last one overlapping
    dtype, leaf = jnp.dtype(dtype), leaves()["split"]
    one, many = np.float32(0.7), np.array([0.7], np.float32)
    large = members.large_members(KEYS, leaf, SCALES, HASH, one, form=FORM, dtype=dtype)
    (pooled,) = members.pooled_members(KEYS, (leaf,), SCALES, HASH[None], many, forms=(FORM,), dtypes=(dtype,))
    assert same(large, pooled)
    large = members.large_factors(KEYS, SCALES, HASH, one, form=FORM, rank=RANK, dtype=dtype)
    (pooled,) = members.pooled_factors(KEYS, SCALES, HASH[None], many, forms=(FORM,), rank=RANK, dtypes=(dtype,))
    assert same(large, pooled)


@pytest.mark.parametrize(("name", "dither"), [("float32", None), ("split", None), ("bfloat16", None), ("bfloat16", 9)])
def test_pooled_and_large_leaves_take_the_same_step(name, dither, monkeypatch):
    monkeypatch.setattr(steps, "block_rows", lambda form, values: 11)
    key = None if dither is None else noise_key(dither, 0, 0)
    one = np.float32(0.05)
    large, a = steps.update_large(KEYS, leaves()[name], SCALES, HASH, one, key, form=FORM, rank=0)
    (pooled,), b = steps.update_pool(KEYS, (leaves()[name],), SCALES, HASH[None], one[None], key, forms=(FORM,), rank=0)
    assert same(large, pooled)
    assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-4)
    assert float(a[4]) > 0
