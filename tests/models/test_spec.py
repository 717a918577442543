"""The table of leaves: exact sizes of the published models, and what noise and sharding ask of every row."""

from __future__ import annotations

import math

import pytest

from esopt_jax.core.noise import check_collisions
from esopt_jax.errors import EsoptError
from esopt_jax.models.layout import by_tensor, tensor_shape
from esopt_jax.models.registry import leaf_specs, load_architecture, parse_architecture
from esopt_jax.models.sharding import RULES
from esopt_jax.models.sizes import PUBLISHED

SIZES = {  # parameters and tensors of the published text models
    "qwen3.5-0.8b": (752_393_024, 320),
    "qwen3.5-2b": (1_881_825_088, 320),
    "qwen3.5-4b": (4_205_751_296, 426),
    "qwen3.5-9b": (8_953_803_264, 427),
    "qwen3.5-27b": (26_895_998_464, 851),
    "llama-3.1-8b": (8_030_261_248, 291),
    "smollm2-135m": (134_515_008, 272),
}


@pytest.mark.parametrize("size", SIZES)
def test_published_sizes_to_the_last_parameter(size):
    specs = leaf_specs(load_architecture(size))
    tensors = by_tensor(specs)
    assert sum(spec.size for spec in specs) == SIZES[size][-2]
    assert len(tensors) == SIZES[size][-1]
    assert sum(math.prod(tensor_shape(leaves)) for leaves in tensors.values()) == SIZES[size][-2]


@pytest.mark.parametrize("size", SIZES)
def test_every_row_is_consistent(size):
    specs = leaf_specs(load_architecture(size))
    assert len({spec.path for spec in specs}) == len(specs)
    check_collisions(specs)
    for spec in specs:
        rows, columns = spec.noise_form
        assert rows * columns == spec.size == math.prod(spec.shape), spec.path
        assert len(spec.axes) == len(spec.shape), spec.path
        assert spec.inputs < len(spec.shape), spec.path
        assert spec.is_matrix == (spec.group in ("matrix", "embedding")), spec.path
        assert set(spec.axes) <= {None, *RULES}, spec.path
        assert len([axis for axis in spec.axes if axis]) <= 1, spec.path  # one mesh axis cannot shard two dimensions


def test_every_published_model_is_counted():
    assert set(SIZES) == set(PUBLISHED)


def test_an_unknown_published_model_lists_what_is_known():
    with pytest.raises(EsoptError, match=r"did you mean 'qwen3\.5-27b'\?.*llama-3\.1-8b"):
        load_architecture("qwen3.5-27")


def test_every_third_of_four_layers_is_linear(config):
    del config["layer_types"]
    arch = parse_architecture(config | {"num_hidden_layers": 8, "full_attention_interval": 4})
    assert [kind == "full_attention" for kind in arch.layer_types] == [False, False, False, True] * 2


def test_an_explicit_list_wins_over_the_interval(config):
    arch = parse_architecture(config | {"layer_types": ["full_attention"] * 2, "full_attention_interval": 2})
    assert arch.layer_types == ("full_attention",) * 2


def test_the_layout_of_a_layer_is_frozen(config):
    """Paths and shapes key the noise: a change here makes old run histories unreadable."""
    specs = {spec.path: (spec.shape, spec.noise_form) for spec in leaf_specs(parse_architecture(config))}
    assert specs["embed_tokens.weight"] == ((48, 16), (48, 16))
    assert specs["layers.0.linear_attn.in_proj_qkv.weight#v"] == ((16, 3, 6), (16, 18))
    assert specs["layers.0.linear_attn.conv1d.weight#q"] == ((4, 1, 8), (4, 8))
    assert specs["layers.0.linear_attn.A_log"] == ((3,), (1, 3))
    assert specs["layers.0.linear_attn.out_proj.weight"] == ((3, 6, 16), (18, 16))
    assert specs["layers.1.self_attn.q_proj.weight"] == ((16, 2, 2, 2, 8), (16, 64))
    assert specs["layers.1.self_attn.o_proj.weight"] == ((2, 2, 8, 16), (32, 16))
    assert specs["layers.1.mlp.down_proj.weight"] == ((20, 16), (20, 16))
    assert len(specs) == 1 + (5 + 13) + (5 + 6) + 1  # norms and MLP of a layer are 5
