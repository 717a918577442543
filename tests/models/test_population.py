"""The model as the population and the trainer of the base use it: vmapped over members, differentiated."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.master import make_master
from esopt_jax.core.perturb import materialize, member_view, perturb_population, view_axes
from esopt_jax.models.registry import decode_step, init_cache, prefill, score

M, B, T, S = 3, 2, 6, 10


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(0).integers(0, 48, (M, B, T))


@pytest.mark.parametrize("plan", ["full", "low_rank"])
def test_members_at_once_are_the_members_one_by_one(tiny, tokens, plan):
    """Against each member's dense weights, through a ragged prompt and a step."""
    master = make_master(tiny.params, specs=tiny.specs, format="float32")
    view = perturb_population(
        0, 0, jnp.arange(M), master, specs=tiny.specs, sigma=0.1, plan=plan, rank=2, dtype=jnp.float32
    )
    lengths, live = np.array([T, 2]), np.array([True, True])

    def play(view, tokens):
        first, cache = prefill(view, init_cache(tiny.arch, B, S), tokens, lengths, arch=tiny.arch)
        return first, decode_step(view, cache, tokens[:, 0], live, arch=tiny.arch)[0]

    together = jax.jit(jax.vmap(play, in_axes=(view_axes(view), 0)))(view, tokens)
    one = jax.jit(play)
    for member in range(M):
        expected = one(materialize(member_view(view, member), tiny.specs), tokens[member])
        for found, wanted in zip(together, expected, strict=True):
            np.testing.assert_allclose(found[member], wanted, atol=2e-5)
    assert np.abs(together[0][0] - together[0][1]).max() > 0.1


def test_the_slope_of_a_loss_is_its_difference(tiny, tokens):
    """Along a random direction over all leaves, against central differences; padding must add nothing, not even NaN."""
    ids, lengths = tokens[0], np.array([T, 2])
    targets = jax.nn.one_hot(ids[:, 1:], 48) * (np.arange(1, T) < lengths[:, None])[..., None]

    def loss(params):
        logits = score(params, ids, lengths, arch=tiny.arch)[:, :-1]
        return -jnp.sum(targets * jax.nn.log_softmax(logits))

    rng = np.random.default_rng(1)
    way = {path: jnp.asarray(rng.standard_normal(leaf.shape), jnp.float32) for path, leaf in tiny.params.items()}
    norm = np.sqrt(sum(float(jnp.sum(x * x)) for x in way.values()))
    way = {path: x / norm for path, x in way.items()}
    value = jax.jit(loss)
    gradient = jax.jit(jax.grad(loss))(tiny.params)
    assert all(np.isfinite(x).all() and np.abs(x).max() > 0 for x in gradient.values())
    slope = sum(float(jnp.sum(gradient[path] * way[path])) for path in way)
    step = 0.02
    ahead, behind = (value({path: leaf + s * way[path] for path, leaf in tiny.params.items()}) for s in (step, -step))
    assert float(ahead - behind) / (2 * step) == pytest.approx(slope, rel=2e-2, abs=2e-3)


def test_a_prompt_is_differentiable_in_pieces(tiny, tokens):
    """The scan over pieces has the gradient of the whole."""
    ids, lengths = tokens[0], np.array([T, 2])

    def total(params, segment):
        empty = init_cache(tiny.arch, B, S)
        return jnp.sum(prefill(params, empty, ids, lengths, arch=tiny.arch, segment=segment)[0] ** 2)

    whole, pieces = (jax.jit(jax.grad(partial(total, segment=n)))(tiny.params) for n in (256, 4))
    for path in whole:
        scale = np.abs(whole[path]).max() + 1e-3
        np.testing.assert_allclose(pieces[path], whole[path], atol=1e-4 * scale, err_msg=path)
