"""The chunked delta rule against the defining recurrence in float64, one head at a time."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

from esopt_jax.models.delta_rule import scan_chunks, step, unit_lower_inverse

B, HK, G, DK, DV = 2, 2, 3, 5, 4


def inputs(tokens, *, decay=1.0, repeat=False):
    rng = np.random.default_rng(tokens)
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    q, k = (unit(rng.standard_normal((B, HK, tokens, DK))) for _ in range(2))
    if repeat:
        k[:] = k[:, :, :1]
    v = rng.standard_normal((B, HK, G, tokens, DV))
    g = -decay * rng.exponential(size=(B, HK, G, tokens))
    beta = rng.uniform(size=(B, HK, G, tokens))
    state = rng.standard_normal((B, HK, DK, G * DV))
    return tuple(x.astype(np.float32) for x in (q, k, v, g, beta, state))


def recurrence(q, k, v, g, beta, state):
    q, k, v, g, beta, state = (x.astype(np.float64) for x in (q, k, v, g, beta, state))
    out, last = np.zeros(v.shape), np.zeros_like(state)
    for b, h, i in np.ndindex(B, HK, G):
        S = state[b, h, :, i * DV : (i + 1) * DV]
        for t in range(q.shape[2]):
            S = np.exp(g[b, h, i, t]) * S
            d = beta[b, h, i, t] * (v[b, h, i, t] - S.T @ k[b, h, t])
            S = S + np.outer(k[b, h, t], d)
            out[b, h, i, t] = S.T @ q[b, h, t]
        last[b, h, :, i * DV : (i + 1) * DV] = S
    return out, last


@pytest.mark.parametrize(("tokens", "chunk"), [(1, 1), (7, 3), (9, 12), (13, 13), (80, 11)])
def test_chunks_are_the_recurrence(tokens, chunk):
    found = jax.jit(partial(scan_chunks, chunk=chunk))(*inputs(tokens))
    for one, other in zip(found, recurrence(*inputs(tokens)), strict=True):
        np.testing.assert_allclose(one, other, atol=5e-6)


@pytest.mark.parametrize(("decay", "tolerance"), [(0.0, 1e-5), (1e-6, 1e-5), (30.0, 5e-5), (1e4, 1e-5)])
def test_chunks_at_extremes_of_decay(decay, tolerance):
    """A chunk works with running sums of decay; at 30 a token they reach 500, whose last float32 bit is 3e-5."""
    given = inputs(40, decay=decay)
    for one, other in zip(jax.jit(partial(scan_chunks, chunk=16))(*given), recurrence(*given), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


def test_chunks_where_one_key_repeats():
    """All keys equal, full write strength, no decay: the triangular system is as ill scaled as it gets."""
    q, k, v, g, beta, state = inputs(64, decay=0.0, repeat=True)
    given = (q, k, v, g, np.ones_like(beta), state)
    for one, other in zip(jax.jit(partial(scan_chunks, chunk=64))(*given), recurrence(*given), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_a_step_is_a_chunk_of_one():
    q, k, v, g, beta, state = inputs(1)
    out, after = step(q[:, :, 0], k[:, :, 0], v[:, :, :, 0], g[..., 0], beta[..., 0], state)
    expected, last = recurrence(q, k, v, g, beta, state)
    np.testing.assert_allclose(out, expected[:, :, :, 0], atol=2e-6)
    np.testing.assert_allclose(after, last, atol=2e-6)


def test_closed_gates_leave_the_state_to_the_bit():
    q, k, v, g, beta, state = inputs(6)
    after = step(q[:, :, 0], k[:, :, 0], v[:, :, :, 0], 0 * g[..., 0], 0 * beta[..., 0], state)[1]
    assert np.asarray(after).tobytes() == state.tobytes()
    after = jax.jit(partial(scan_chunks, chunk=4))(q, k, v, 0 * g, 0 * beta, state)[1]
    assert np.asarray(after).tobytes() == state.tobytes()


@pytest.mark.parametrize("size", [1, 8, 9, 17])
def test_unit_lower_inverse(size):
    a = np.tril(np.random.default_rng(size).uniform(-1, 1, (2, size, size)), -1).astype(np.float32) / np.sqrt(size)
    product = (np.eye(size) + a.astype(np.float64)) @ np.asarray(jax.jit(unit_lower_inverse)(a))
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(size), a.shape), atol=1e-5)
