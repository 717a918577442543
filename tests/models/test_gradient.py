"""Gradients of whole sequences: chunked delta rule and attention, with the inside of layers kept or computed again."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.models.registry import score

IDS = jnp.asarray(np.random.default_rng(0).integers(4, 40, (2, 80)), jnp.int32)  # more than a chunk of the delta rule
LENGTHS = jnp.array([80, 37], jnp.int32)


def loss(params, arch, remat=False):
    """Mean log-probability of the tokens that are there."""
    logits = jax.nn.log_softmax(score(params, IDS, LENGTHS, arch=arch, remat=remat)[:, :-1])
    each = jnp.take_along_axis(logits, IDS[:, 1:, None], axis=-1)[..., 0]
    there = jnp.arange(1, IDS.shape[1]) < LENGTHS[:, None]
    return jnp.sum(jnp.where(there, each, 0)) / there.sum()


def test_gradient_of_every_leaf_equals_finite_differences(tiny):
    """Along a random direction; the step is small, since normed keys of short vectors turn quickly."""
    value, h = jax.jit(partial(loss, arch=tiny.arch)), 1e-4
    gradient = jax.jit(jax.grad(partial(loss, arch=tiny.arch)))(tiny.params)
    chooser = np.random.default_rng(1)
    for path, leaf in tiny.params.items():
        way = jnp.asarray(chooser.normal(size=leaf.shape), jnp.float32)
        below, above = (float(value({**tiny.params, path: leaf + step * way})) for step in (-h, h))
        slope = float(jnp.vdot(gradient[path], way))
        assert (above - below) / (2 * h) == pytest.approx(slope, rel=0.03, abs=0.015), path
        assert (np.asarray(gradient[path]) != 0).any(), path


def test_computing_layers_again_does_not_change_the_gradient(tiny):
    found = [jax.grad(partial(loss, arch=tiny.arch, remat=remat)) for remat in (False, True)]
    kept, again = (jax.jit(f)(tiny.params) for f in found)
    for path in kept:
        scale = float(jnp.abs(kept[path]).max())
        np.testing.assert_allclose(again[path], kept[path], atol=1e-7 + 1e-5 * scale, err_msg=path)
    layers = [[eqn.primitive.name for eqn in jax.make_jaxpr(f)(tiny.params).eqns].count("remat2") for f in found]
    assert layers[0] == 0 and layers[1] >= tiny.arch.num_hidden_layers
