"""A factored weight is the dense member it stands for, and a population shares one product with the base."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.perturb import Factored
from esopt_jax.models.ops import dense, embed, rms_norm, sigmoid, silu, unembed

M = 3
RANKS = [1, 4, 16]
SHAPES = [((6, 5), 1), ((6, 2, 3, 4), 1), ((2, 3, 4, 6), 3)]


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def factored(shape, inputs, rank):
    """A population of M members of a leaf of `shape`."""
    rows, columns = np.prod(shape[:inputs], dtype=int), np.prod(shape[inputs:], dtype=int)
    return Factored(base=draw(0, *shape), left=draw(1, M, rank, rows), right=draw(2, M, rank, columns))


def member(w, m):
    return Factored(base=w.base, left=w.left[m], right=w.right[m])


def materialised(w, m):
    change = w.left[m].astype(np.float64).T @ w.right[m]
    return w.base + change.reshape(w.base.shape)


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
    return jax.vmap(embed, in_axes=(0, AXES)), np.random.default_rng(3).integers(0, shape[0], (M, 2, 7))


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
        expected = oracle(x[m], materialised(w, m), inputs)
        np.testing.assert_allclose(found[m], expected, rtol=1e-5, atol=3e-5)
        np.testing.assert_allclose(plain(x[m], member(w, m), **keywords), expected, rtol=1e-5, atol=3e-5)
        np.testing.assert_allclose(
            plain(x[m], materialised(w, m).astype(np.float32), **keywords), expected, rtol=1e-5, atol=3e-5
        )


def equations(jaxpr):
    """All equations, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.core.jaxprs_in_params(equation.params) if hasattr(jax.core, "jaxprs_in_params") else ():
            yield from equations(inner)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("op", "shape", "inputs"), CONTRACTIONS)
def test_the_base_stays_one_for_all_members(op, shape, inputs, rank):
    """No value of the program is a base per member, and the product with the base is one without batch axes."""
    w = factored(shape, inputs, rank)
    run, x = population(op, shape, inputs)
    found = list(equations(jax.make_jaxpr(run)(x, w).jaxpr))
    sizes = [v.aval.size for equation in found for v in equation.outvars]
    largest_allowed = max(w.left.size, w.right.size, x.size, run(x, w).size * (1 if op == "embed" else rank))
    assert max(sizes) <= max(largest_allowed, w.base.size)
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


@pytest.mark.parametrize("x", [0.0, 1.0, -1.0, 30.0, -30.0, -100.0, 1e4, -1e4])
def test_gates_are_exact_and_their_gradients_finite(x):
    expected = 1 / (1 + np.exp(-np.float64(x), where=x > -700, out=np.array(np.inf)))
    for op, value in ((sigmoid, expected), (silu, x * expected)):
        np.testing.assert_allclose(op(jnp.float32(x)), value, rtol=1e-6, atol=1e-30)
        assert np.isfinite(jax.grad(op)(jnp.float32(x)))


def test_rms_norm_is_zero_centred_and_works_in_float32():
    x, gain = draw(0, 4, 8), draw(1, 8)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * (1 + gain)
    np.testing.assert_allclose(rms_norm(x, gain, eps=1e-6), expected, rtol=1e-5)
    half = rms_norm(jnp.asarray(x, jnp.bfloat16) * 1e20, jnp.asarray(gain, jnp.bfloat16), eps=1e-6)
    assert half.dtype == jnp.bfloat16 and np.isfinite(half.astype(jnp.float32)).sum() == 0 or np.abs(half).max() < 9
