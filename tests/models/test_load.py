"""Reading a model folder: what is refused and how, and what files are allowed to look like."""

from __future__ import annotations

import json

import numpy as np
import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.models.load import builtin_names, load_model
from esopt_jax.models.registry import parse_architecture


def refusal(call, *args):
    """The message of the `EsoptError`, which must be one line."""
    with pytest.raises(EsoptError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_that_is_not_there(tmp_path):
    assert "does not exist" in (text := refusal(load_model, tmp_path / "none")) and "builtin:NAME" in text


def test_a_file_instead_of_a_folder(tmp_path):
    (tmp_path / "weights").write_text("")
    assert "is a file" in refusal(load_model, tmp_path / "weights")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_an_incomplete_folder(write, config, name):
    folder = write(config)
    (folder / name).unlink()
    assert f"has no {name}" in refusal(load_model, folder)


@pytest.mark.parametrize("text", ["{", "[]", "3", "\xff"])
def test_a_broken_config(write, config, text):
    folder = write(config)
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    assert str(folder / "config.json") in refusal(load_model, folder)


def test_broken_weights(write, config):
    folder = write(config)
    (folder / "model.safetensors").write_bytes(b"\x00" * 40)
    assert "not a readable safetensors file" in refusal(load_model, folder)


@pytest.mark.parametrize(
    "name",
    ["vocab_size", "head_dim", "linear_conv_kernel_dim", "rms_norm_eps", "tie_word_embeddings", "initializer_range"],
)
def test_a_missing_field_is_never_guessed(config, name):
    del config[name]
    assert f"{name} is missing" in refusal(parse_architecture, config)


def test_all_missing_fields_are_named_at_once(config):
    del config["hidden_size"], config["layer_types"], config["rope_parameters"]["rope_theta"]
    text = refusal(parse_architecture, config)
    assert "hidden_size is missing" in text
    assert "layer_types (or full_attention_interval) is missing" in text
    assert "rope_parameters.rope_theta is missing" in text


def test_an_unsupported_model_lists_what_is_supported(config):
    for other in ("qwen3_5_moe_text", "mixtral", None):
        text = refusal(parse_architecture, config | {"model_type": other})
        assert repr(other) in text and "qwen3_5, qwen3_5_text, llama" in text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"vocab_size": -1}, "vocab_size is -1; it must be a positive number"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false"),
        ({"layer_types": ["mamba", "full_attention"]}, "layer_types (or full_attention_interval) has mamba"),
        ({"layer_types": ["full_attention"]}, "1 layer_types for 2 layers"),
        ({"num_attention_heads": 3}, "num_attention_heads must be a multiple of num_key_value_heads"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: silu"),
        ({"attention_bias": True}, "attention_bias is set; supported: false"),
        ({"attn_output_gate": False}, "attn_output_gate is off; supported: true"),
        ({"text_config": [1]}, "text_config is [1]; it must be a section with fields"),
    ],
)
def test_a_bad_value_is_named(config, change, expected):
    assert expected in refusal(parse_architecture, config | change)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rope_type": "yarn"}, "rope_parameters.rope_type is 'yarn'; supported: default"),
        ({"mrope_section": [2, 1, 1]}, "mrope_section [2, 1, 1] must sum to 2"),
        ({"mrope_section": "211"}, "mrope_section 211 must sum to 2"),
        ({"partial_rotary_factor": 0.375}, "the rotated part of a head is 3 wide; it must be even"),
    ],
)
def test_a_bad_rope_is_named(config, change, expected):
    config["rope_parameters"] |= change
    assert expected in refusal(parse_architecture, config)


def test_every_wrong_tensor_is_named_in_one_error(write, config, tensors):
    del tensors["model.norm.weight"], tensors["model.layers.0.linear_attn.A_log"]
    tensors["model.layers.9.extra"] = np.zeros(1, np.float32)
    tensors["model.visual.extra"] = np.zeros(1, np.float32)
    tensors["model.embed_tokens.weight"] = np.zeros((47, 16), np.float32)
    tensors["model.layers.0.linear_attn.conv1d.weight"] = np.zeros((34, 4), np.float32)
    text = refusal(load_model, write(config, tensors))
    assert "missing model.norm.weight" in text and "missing model.layers.0.linear_attn.A_log" in text
    assert "unexpected model.layers.9.extra" in text and "visual" not in text
    assert "model.embed_tokens.weight is [47, 16] instead of [48, 16]" in text
    assert "model.layers.0.linear_attn.conv1d.weight is [34, 4] instead of [34, 1, 4]" in text


def test_an_untied_model_needs_its_head(write, config, tensors):
    config["tie_word_embeddings"] = False
    assert "missing lm_head.weight" in refusal(load_model, write(config, tensors))


def test_a_tied_model_ignores_a_repeated_table(write, config, tensors):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    assert "lm_head.weight" not in load_model(write(config, tensors)).params


def test_an_unknown_builtin_lists_what_ships():
    text = refusal(load_model, "builtin:sudoku-9x9")
    assert "'sudoku-9x9'" in text and "did you mean 'sudoku-4x4'?" in text
    assert "sudoku-4x4" in refusal(load_model, "builtin:zzz")


@pytest.mark.parametrize("name", builtin_names())
def test_what_ships_loads(name):
    model = load_model(f"builtin:{name}")
    assert model.tokenizer_path is not None and model.eos_ids and model.vocab_limit <= model.arch.vocab_size
    assert all(np.isfinite(leaf).all() for leaf in model.params.values())


def test_the_text_part_of_a_multimodal_config_counts(write, config):
    folder = write(config)
    outer = {"model_type": "qwen3_5", "text_config": config, "hidden_size": 999, "eos_token_id": 5}
    (folder / "config.json").write_text(json.dumps(outer))
    model = load_model(folder)
    assert model.arch == parse_architecture(config)
    assert model.eos_ids == (3, 5)


def test_the_tie_may_stand_at_the_top_level_alone(config):
    tied = config.pop("tie_word_embeddings")
    outer = {"model_type": "qwen3_5", "text_config": config, "tie_word_embeddings": tied}
    assert parse_architecture(outer).tie_word_embeddings is tied
    config["tie_word_embeddings"] = not tied
    assert parse_architecture(outer).tie_word_embeddings is not tied


def test_end_ids_are_the_union_of_all_files(write, config):
    folder = write(config)
    assert load_model(folder).eos_ids == (3,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [9, 3, 4]}')
    assert load_model(folder).eos_ids == (3, 4, 9)
    (folder / "generation_config.json").write_text('{"eos_token_id": ["</s>"]}')
    assert "eos_token_id is ['</s>']" in refusal(load_model, folder)


def test_a_tokenizer_bounds_the_vocabulary_and_must_fit_it(write, config):
    from tokenizers import Tokenizer, models

    folder = write(config)
    assert load_model(folder).vocab_limit == 48 and load_model(folder).tokenizer_path is None
    for size in (40, 49):
        vocabulary = {chr(97 + i): i for i in range(size)}
        Tokenizer(models.WordLevel(vocabulary, unk_token="a")).save(str(folder / "tokenizer.json"))
        if size == 40:
            assert load_model(folder).vocab_limit == 40
    assert "has 49 tokens but the model only 48" in refusal(load_model, folder)
    (folder / "tokenizer.json").write_text("{}")
    assert "not a readable tokenizer" in refusal(load_model, folder)


def test_weights_are_where_the_file_has_them(write, config, tensors):
    """One element of each orientation, by hand."""
    params = load_model(write(config, tensors)).params
    qkv = tensors["model.layers.0.linear_attn.in_proj_qkv.weight"]  # rows: 8 of q, 8 of k, 18 of v
    assert params["layers.0.linear_attn.in_proj_qkv.weight#v"][5, 2, 4] == qkv[8 + 8 + 2 * 6 + 4, 5]
    conv = tensors["model.layers.0.linear_attn.conv1d.weight"]
    assert params["layers.0.linear_attn.conv1d.weight#k"][1, 0, 3] == conv[8 + 3, 0, 1]
    queries = tensors["model.layers.1.self_attn.q_proj.weight"]  # per query head: query, then gate
    assert params["layers.1.self_attn.q_proj.weight"][7, 1, 0, 1, 3] == queries[(2 * 1 + 0) * 16 + 8 + 3, 7]
    out = tensors["model.layers.1.self_attn.o_proj.weight"]
    assert params["layers.1.self_attn.o_proj.weight"][1, 0, 3, 9] == out[9, (2 * 1 + 0) * 8 + 3]
    assert params["embed_tokens.weight"][4, 2] == tensors["model.embed_tokens.weight"][4, 2]
