"""A factored weight is the dense member it stands for, and a population shares one product with the base."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.perturb import Factored
from esopt_jax.models.ops import dense, embed, plain_rms_norm, rms_norm, sigmoid, silu, unembed

M = 3
RANKS = [1, 4, 16]
SHAPES = [((6, 5), 1), ((6, 2, 3, 4), 1), ((2, 3, 4, 6), 3)]


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def factored(shape, inputs, rank):
    """A population of M members of a leaf of `shape`."""
    rows, columns = math.prod(shape[:inputs]), math.prod(shape[inputs:])
    return Factored(base=draw(0, *shape), left=draw(1, M, rank, rows), right=draw(2, M, rank, columns))


def materialised(w, m):
    change = np.asarray(w.left[m], np.float64).T @ np.asarray(w.right[m])
    return np.asarray(w.base) + change.reshape(w.base.shape)


AXES = Factored(base=None, left=0, right=0)
CASES = {
    "dense": (dense, lambda x, w, n: np.tensordot(x, w, n)),
    "unembed": (unembed, lambda x, w, n: x @ w.T),
    "embed": (embed, lambda ids, w, n: w[ids]),
}


def population(op, shape, inputs):
    """The op as it runs over members, and inputs `[M, 2, 7, ...]` that differ by member."""
    if op == "dense":
        return jax.vmap(lambda x, w: dense(x, w, inputs=inputs), in_axes=(0, AXES)), draw(3, M, 2, 7, *shape[:inputs])
    if op == "unembed":
        return jax.vmap(unembed, in_axes=(0, AXES)), draw(3, M, 2, 7, shape[1])
    return jax.vmap(embed, in_axes=(0, AXES)), jnp.asarray(np.random.default_rng(3).integers(0, shape[0], (M, 2, 7)))


CONTRACTIONS = [("dense", *s) for s in SHAPES] + [("unembed", (9, 5), 1), ("embed", (9, 5), 1)]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("op", "shape", "inputs"), CONTRACTIONS)
def test_factored_is_the_dense_member(op, shape, inputs, rank):
    w = factored(shape, inputs, rank)
    run, x = population(op, shape, inputs)
    found = jax.jit(run)(x, w)
    plain, oracle = CASES[op]
    keywords = {"inputs": inputs} if op == "dense" else {}
    for m in range(M):
        expected = oracle(np.asarray(x[m]), materialised(w, m), inputs)
        np.testing.assert_allclose(found[m], expected, rtol=1e-5, atol=3e-5)
    dense_member = jnp.asarray(materialised(w, 0), jnp.float32)
    for one in (Factored(base=w.base, left=w.left[0], right=w.right[0]), dense_member):
        expected = oracle(np.asarray(x[0]), materialised(w, 0), inputs)
        np.testing.assert_allclose(plain(x[0], one, **keywords), expected, rtol=1e-5, atol=3e-5)


def equations(jaxpr):
    """All equations, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            if hasattr(value, "eqns"):
                yield from equations(value)
            elif hasattr(getattr(value, "jaxpr", None), "eqns"):
                yield from equations(value.jaxpr)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("op", "shape", "inputs"), CONTRACTIONS)
def test_the_base_stays_one_for_all_members(op, shape, inputs, rank):
    """No value of the program is a base per member, and the product with the base is one without batch axes."""
    w = factored(shape, inputs, rank)
    run, x = population(op, shape, inputs)
    found = list(equations(jax.make_jaxpr(run)(x, w).jaxpr))
    assert not [v for equation in found for v in equation.outvars if v.aval.shape == (M, *shape)]
    products = [equation for equation in found if equation.primitive.name == "dot_general"]
    if op == "embed":
        assert not products
        return
    unbatched = [e for e in products if e.params["dimension_numbers"][1] == ((), ())]
    assert len(unbatched) == 1
    assert unbatched[0].invars[1].aval.size == w.base.size
    # the low-rank term: one product, or two when the rank is too high to be fused
    assert len(products) == (3 if rank > 8 else 2)


def test_ids_beyond_the_table_give_some_row():
    """Clipped, as the padding of a segment may be anything."""
    table = draw(0, 5, 3)
    assert (embed(jnp.array([-9, 99]), table)[1] == table[4]).all()


def test_gates_are_exact_and_their_gradients_finite():
    x = np.array([0.0, 1.0, -1.0, 30.0, -30.0, -79.0, -100.0, 1e4, -1e4])
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-x))
    for op, value in ((sigmoid, expected), (silu, x * expected)):
        np.testing.assert_allclose(op(jnp.asarray(x, jnp.float32)), value, rtol=1e-6, atol=1e-30)
        assert np.isfinite(jax.grad(lambda t, op=op: op(t).sum())(jnp.asarray(x, jnp.float32))).all()


def test_rms_norm_is_zero_centred_and_works_in_float32():
    x, gain = draw(0, 4, 8), draw(1, 8)
    exact = np.asarray(x, np.float64)
    expected = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-6) * (1 + np.asarray(gain))
    np.testing.assert_allclose(rms_norm(x, gain, eps=1e-6), expected, rtol=1e-5)
    large = rms_norm(jnp.asarray(1e15 * x, jnp.bfloat16), jnp.asarray(gain, jnp.bfloat16), eps=1e-6)
    assert large.dtype == jnp.bfloat16
    np.testing.assert_allclose(large.astype(jnp.float32), expected, rtol=0.03, atol=0.03)


def test_a_gain_near_one_is_not_rounded_to_the_type_of_its_input():
    """In bfloat16 1.002 would be 1; over many inputs the mean of what comes out shows it."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((64, 4096)), jnp.bfloat16)
    one, more = (plain_rms_norm(x, jnp.full(4096, gain), eps=1e-6).astype(jnp.float32) for gain in (1.0, 1.002))
    assert one.dtype == jnp.float32 and float(jnp.abs(more).mean() / jnp.abs(one).mean()) == pytest.approx(
        1.002, abs=2e-4
    )


def test_factors_may_be_finer_than_what_they_are_added_to():
    rng = np.random.default_rng(1)
    x, base = (jnp.asarray(rng.standard_normal(shape), jnp.bfloat16) for shape in ((3, 8), (8, 6)))
    left, right = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((2, 8), (2, 6)))
    found = dense(x, Factored(base, left, right))
    expected = x.astype(jnp.float32) @ (base.astype(jnp.float32) + left.T @ right)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, atol=0.1)
    table = Factored(base, jnp.ones((2, 8)), right)
    assert embed(jnp.arange(3), table).dtype == unembed(found, table).dtype == jnp.bfloat16
