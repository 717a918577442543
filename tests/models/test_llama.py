"""A Llama's `config.json`, its table of leaves and its rope, without torch."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.models.layout import join_tensors, split_tensors
from esopt_jax.models.llama import frequencies
from esopt_jax.models.llama_config import Llama3Scaling
from esopt_jax.models.registry import leaf_specs, load_architecture, parse_architecture


def refusal(config):
    """The message of the `EsoptError`, which must be one line."""
    with pytest.raises(EsoptError) as caught:
        parse_architecture(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def old(llama_config):
    """The same model as transformers 4 wrote it."""
    config = copy.deepcopy(llama_config)
    rope = config.pop("rope_parameters")
    return config | {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}


def test_both_spellings_of_rope_are_one(llama_config, old):
    arch = parse_architecture(old)
    assert arch == parse_architecture(llama_config)
    assert arch.rope_theta == 100.0 and arch.rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 64)
    old["rope_scaling"]["type"] = old["rope_scaling"].pop("rope_type")  # older still
    assert parse_architecture(old) == arch


def test_plain_rope_in_every_spelling(llama_config, old):
    llama_config["rope_parameters"] = {"rope_type": "default", "rope_theta": 100.0}
    plain = parse_architecture(llama_config)
    assert plain.rope_scaling is None
    assert parse_architecture(old | {"rope_scaling": None}) == plain
    del old["rope_scaling"]
    assert parse_architecture(old) == plain


def test_what_follows_from_other_fields_may_be_absent(llama_config):
    """Older files lack `head_dim` and the biases, and Llama 1 the key-value heads."""
    llama_config["head_dim"] = 4
    whole = parse_architecture(llama_config)
    for name in ("head_dim", "attention_bias", "mlp_bias"):
        del llama_config[name]
    assert parse_architecture(llama_config) == parse_architecture(llama_config | {"head_dim": None}) == whole
    del llama_config["num_key_value_heads"]
    assert parse_architecture(llama_config).num_key_value_heads == 4


@pytest.mark.parametrize("name", ["vocab_size", "rms_norm_eps", "tie_word_embeddings", "hidden_size"])
def test_anything_else_is_never_guessed(llama_config, name):
    del llama_config[name]
    assert f"{name} is missing" in refusal(llama_config)


def test_a_missing_base_of_rope_is_never_guessed(llama_config, old):
    del llama_config["rope_parameters"]["rope_theta"], old["rope_theta"]
    assert "rope_theta is missing" in refusal(llama_config) and "rope_theta is missing" in refusal(old)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rope_type": "yarn"}, "rope_scaling.rope_type is 'yarn'; supported: default, llama3"),
        ({"rope_type": "linear"}, "rope_scaling.rope_type is 'linear'; supported: default, llama3"),
        ({"factor": None}, "rope_scaling.factor is missing"),
        ({"low_freq_factor": -1}, "rope_scaling.low_freq_factor is -1; it must be a positive number"),
        ({"high_freq_factor": 1.0}, "rope_scaling.high_freq_factor must be above rope_scaling.low_freq_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; supported: 1"),
    ],
)
def test_a_bad_rope_is_named(llama_config, change, expected):
    llama_config["rope_parameters"] |= change
    assert expected in refusal(llama_config)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rope_parameters": 3}, "rope_parameters is 3; it must be a section with fields"),
        ({"mlp_bias": True}, "mlp_bias is set; supported: false"),
        ({"attention_bias": True}, "attention_bias is set; supported: false"),
        ({"rope_interleaved": True}, "rope_interleaved is set; supported: false"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: silu"),
        ({"head_dim": 7}, "head_dim is 7; it must be even"),
        ({"num_attention_heads": 3}, "num_attention_heads must be a multiple of num_key_value_heads"),
        ({"text_config": {"model_type": "qwen3_5_text"}}, "model_type 'llama' is not supported"),
    ],
)
def test_a_bad_value_is_named(llama_config, change, expected):
    assert expected in refusal(llama_config | change)


def test_the_layout_of_a_layer_is_frozen(llama_config):
    """Paths and shapes key the noise: a change here makes old run histories unreadable."""
    table = leaf_specs(parse_architecture(llama_config | {"tie_word_embeddings": False}))
    specs = {spec.path: (spec.shape, spec.noise_form) for spec in table}
    assert specs["embed_tokens.weight"] == specs["lm_head.weight"] == ((48, 16), (48, 16))
    assert specs["layers.0.self_attn.q_proj.weight"] == ((16, 2, 2, 8), (16, 32))
    assert specs["layers.1.self_attn.v_proj.weight"] == ((16, 2, 8), (16, 16))
    assert specs["layers.1.self_attn.o_proj.weight"] == ((2, 2, 8, 16), (32, 16))
    assert specs["layers.1.mlp.down_proj.weight"] == ((20, 16), (20, 16))
    assert len(specs) == 2 + 2 * 9 + 1
    assert {spec.init for spec in table if spec.group == "norm"} == {"ones"}


def test_weights_are_where_the_file_has_them(llama_config):
    specs = leaf_specs(parse_architecture(llama_config))
    rng = np.random.default_rng(0)
    leaves = {spec.path: rng.standard_normal(spec.shape).astype(np.float32) for spec in specs}
    tensors = join_tensors(leaves, specs)
    queries = tensors["model.layers.1.self_attn.q_proj.weight"]  # head 2 * 1 + 0, its dim 3
    assert leaves["layers.1.self_attn.q_proj.weight"][7, 1, 0, 3] == queries[(2 * 1 + 0) * 8 + 3, 7]
    out = tensors["model.layers.1.self_attn.o_proj.weight"]
    assert leaves["layers.1.self_attn.o_proj.weight"][1, 1, 3, 9] == out[9, (2 * 1 + 1) * 8 + 3]
    assert all(np.array_equal(leaf, leaves[path]) for path, leaf in split_tensors(tensors, specs).items())


def test_stretched_frequencies_by_hand():
    """Llama 3.1: short waves stay, long ones are slowed eightfold, those between go over smoothly."""
    arch = load_architecture("llama-3.1-8b")
    plain = 500_000.0 ** -(np.arange(64) / 64)
    ratio = frequencies(arch) / plain
    waves = 8192 * plain / (2 * np.pi)
    np.testing.assert_allclose(ratio[waves > 4], 1.0, rtol=1e-6)
    np.testing.assert_allclose(ratio[waves < 1], 1 / 8, rtol=1e-6)
    between = (waves > 1) & (waves < 4)
    assert 3 < between.sum() < 10 and (np.diff(ratio[between]) < 0).all()
    np.testing.assert_allclose(ratio[between], 1 / 8 + 7 / 8 * (waves[between] - 1) / 3, rtol=1e-6)
