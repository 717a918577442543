"""Fresh weights: the architecture's own initialisers, one key a leaf."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from esopt_jax.models.init import init_params
from esopt_jax.models.registry import leaf_specs


@pytest.fixture(scope="module")
def wide(arch):
    """One leaf of each kind, large enough for statistics, and two of one shape."""
    specs = leaf_specs(dataclasses.replace(arch, vocab_size=500, hidden_size=64, linear_num_value_heads=300))
    kinds = ("embed_tokens.", "layers.0.input_", "A_log", "dt_bias", "conv1d.weight#v", "k_proj.", "v_proj.")
    return tuple(spec for spec in specs if any(kind in spec.path for kind in kinds))


def test_every_leaf_follows_its_rule(wide):
    params = init_params(jax.random.key(0), wide, std=0.05)
    assert params.keys() == {spec.path for spec in wide}
    for spec in wide:
        leaf = np.asarray(params[spec.path])
        assert leaf.shape == spec.shape and leaf.dtype == np.float32
        if spec.init == "zeros":
            assert not leaf.any(), spec.path
        elif spec.init == "ones":
            assert (leaf == 1).all(), spec.path
        elif spec.init == "decay":
            rate = np.exp(leaf)
            assert rate.min() > 0 and rate.max() <= 16.001 and abs(rate.mean() - 8) < 5 * 16 / np.sqrt(12 * rate.size)
        else:
            bound = 5 * 0.05 / np.sqrt(2 * leaf.size)
            assert abs(leaf.std() - 0.05) < bound and abs(leaf.mean()) < 2 * bound, spec.path


def test_a_leaf_depends_on_the_key_and_its_path_alone(wide):
    whole = init_params(jax.random.key(3), wide, std=0.05)
    alone = init_params(jax.random.key(3), wide[:1], std=0.05)
    other = init_params(jax.random.key(4), wide[:1], std=0.05)
    path = wide[0].path
    assert np.array_equal(whole[path], alone[path]) and not np.array_equal(whole[path], other[path])
    twins = [np.asarray(whole[spec.path]) for spec in wide if "k_proj" in spec.path or "v_proj" in spec.path]
    assert len(twins) == 2 and twins[0].shape == twins[1].shape and not np.array_equal(*twins)
