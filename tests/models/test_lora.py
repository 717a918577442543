"""Adapters: where they start, what the forward pass makes of them, and what merging gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.master import base_view, make_master
from esopt_jax.core.perturb import Factored, Shared, perturb_population, unwrapped, view_axes
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.update import make_update
from esopt_jax.models.lora import assembled, base_specs, merged_leaf, with_adapters
from esopt_jax.models.registry import score

IDS = np.random.default_rng(0).integers(0, 48, (2, 9))
LENGTHS = np.full(2, 9)


def scored(view, arch):
    return np.asarray(jax.jit(score, static_argnames="arch")(view, IDS, LENGTHS, arch=arch))


@pytest.fixture(params=["lora:2", "lora:3:embed|self_attn"])
def scope(request):
    return request.param


@pytest.fixture
def tuned(tiny, scope):
    return with_adapters(tiny, scope, seed=7)


def test_a_scope_without_adapters_leaves_the_model_as_it_is(tiny):
    assert with_adapters(tiny, "all_linear", seed=0) is tiny


def test_which_matrices_have_adapters(tiny, tuned, scope):
    added = tuned.specs[len(tiny.specs) :]
    assert tuned.specs[: len(tiny.specs)] == tiny.specs == base_specs(tuned.specs)
    assert tuned_specs(tuned.specs, scope) == added
    of = {spec.path.partition("@")[0] for spec in added}
    if scope == "lora:2":
        assert of == {spec.path for spec in tuned_specs(tiny.specs, "all_linear")}
    else:
        assert "embed_tokens.weight" in of and not any("norm" in path or "mlp" in path for path in of)
    forms = {spec.path: spec.noise_form for spec in tiny.specs}
    for spec in added:
        path, _, side = spec.path.partition("@")
        assert spec.shape == (int(scope[5]), forms[path][side == "right"])


def test_they_start_as_the_base_with_signs_that_the_seed_decides(tiny, tuned, scope):
    view = assembled(dict(tuned.params))
    np.testing.assert_array_equal(scored(view, tiny.arch), scored(tiny.params, tiny.arch))
    other, again = (with_adapters(tiny, scope, seed=seed).params for seed in (8, 7))
    for spec in tuned_specs(tuned.specs, scope):
        leaf = np.asarray(tuned.params[spec.path])
        assert (leaf == again[spec.path]).all()
        if spec.path.endswith("@left"):
            assert set(np.unique(leaf**2).round(6)) == {np.float32(1 / spec.shape[0]).round(6)}
            assert (leaf != other[spec.path]).any() and (leaf > 0).any() and (leaf < 0).any()
        else:
            assert not leaf.any()


def test_the_forward_pass_reads_the_merged_weights(tiny, tuned):
    rng = np.random.default_rng(1)
    params = {s.path: tuned.params[s.path] for s in tiny.specs}
    params |= {s.path: jnp.asarray(0.3 * rng.standard_normal(s.shape), jnp.float32) for s in tuned.specs[len(params) :]}
    merged = {spec.path: merged_leaf(params, spec.path) for spec in tiny.specs}
    ours, expected = scored(assembled(params), tiny.arch), scored(merged, tiny.arch)
    assert np.abs(expected - scored(tiny.params, tiny.arch)).max() > 0.5
    np.testing.assert_allclose(ours, expected, atol=2e-4 * np.abs(expected).max())


def test_members_share_the_base_and_own_their_adapters_alone(tiny, tuned, scope):
    master = make_master(tuned.params, specs=tuned.specs, format="float32")
    at = {"specs": tuned.specs, "sigma": 0.2, "plan": "full", "rank": 1, "dtype": jnp.float32, "scope": scope}
    view = perturb_population(0, 0, jnp.arange(3), master, **at)
    assert all(isinstance(view[spec.path], Shared) for spec in tiny.specs)
    model_view, axes = assembled(unwrapped(view)), assembled(view_axes(view))
    adapted = {path for path, leaf in model_view.items() if isinstance(leaf, Factored)}
    assert all(model_view[path].base is master[path] and axes[path].base is None for path in adapted)

    def run(view):
        return score(view, IDS, LENGTHS, arch=tiny.arch)

    logits = jax.jit(jax.vmap(run, in_axes=(axes,)))(model_view)
    for member in range(3):
        own = {path: leaf.base if isinstance(leaf, Shared) else leaf[member] for path, leaf in view.items()}
        dense = {spec.path: merged_leaf(own, spec.path) for spec in tiny.specs}
        np.testing.assert_allclose(logits[member], scored(dense, tiny.arch), atol=2e-3)
    assert np.abs(logits[0] - logits[1]).max() > 0.01


def test_an_update_moves_the_adapters_alone(tiny, tuned, scope):
    master = make_master(tuned.params, specs=tuned.specs, format="split")
    base = {path: np.array(leaf) for path, leaf in base_view(master, specs=tuned.specs, dtype=jnp.float32).items()}
    update = make_update(tuned.specs, population_size=2, plan="full", rank=1, scope=scope)
    after, _ = update(0, 0, master, np.array([1.0, -1.0], np.float32), 0.1)
    found = base_view(after, specs=tuned.specs, dtype=jnp.float32)
    still = {spec.path for spec in tuned.specs if (np.asarray(found[spec.path]) == base[spec.path]).all()}
    assert still == {spec.path for spec in tiny.specs}


def test_adapters_take_steps_that_bfloat16_would_lose(tiny):
    """At rank 8 an entry of A is 0.35, whose neighbours in bfloat16 are 2e-3 away: sigma 1e-4 would not reach them."""
    tuned = with_adapters(tiny, "lora:8", seed=0)
    at = {"specs": tuned.specs, "sigma": 1e-4, "plan": "full", "rank": 1, "dtype": jnp.bfloat16, "scope": "lora:8"}
    master = make_master(dict(tuned.params), specs=tuned.specs, format="split")
    view = perturb_population(0, 0, jnp.arange(2), master, **at)
    for spec in tuned_specs(tuned.specs, "lora:8"):
        assert view[spec.path].dtype == jnp.float32
        assert np.mean(np.asarray(view[spec.path]) != np.asarray(tuned.params[spec.path])) > 0.99
    axes = assembled(view_axes(view))
    both = jax.jit(jax.vmap(lambda v: score(v, IDS, LENGTHS, arch=tiny.arch), in_axes=(axes,)))(
        assembled(unwrapped(view))
    )
    assert np.isfinite(np.asarray(both, np.float32)).all()
