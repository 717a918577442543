"""Llamas from GGUF files: names, order of rows, quantised types, what is refused; without torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from gguf_files import CONFIG, METADATA, TOKENIZER, gguf_tensors, write_gguf

from esopt_jax.errors import EsoptError
from esopt_jax.models import save
from esopt_jax.models.gguf_file import find_gguf
from esopt_jax.models.layout import join_tensors
from esopt_jax.models.llama import frequencies
from esopt_jax.models.load import load_model
from esopt_jax.models.registry import leaf_specs, parse_architecture
from esopt_jax.models.save import save_params


def refusal(path):
    """The message of the `EsoptError`, which must be one line."""
    with pytest.raises(EsoptError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def leaves_of(config):
    rng = np.random.default_rng(0)
    return {s.path: rng.standard_normal(s.shape).astype(np.float32) for s in leaf_specs(parse_architecture(config))}


@pytest.fixture(scope="module")
def leaves():
    return leaves_of(CONFIG)


@pytest.fixture
def tensors(leaves):
    return gguf_tensors(join_tensors(leaves, leaf_specs(parse_architecture(CONFIG))))


@pytest.fixture
def file(tmp_path, tensors):
    return write_gguf(tmp_path / "tiny.gguf", tensors, METADATA)


def test_a_file_is_the_model_it_was_made_from(file, leaves):
    model = load_model(file)
    assert model.arch == parse_architecture(CONFIG)
    assert model.eos_ids == (2, 5) and model.vocab_limit == 48 and model.folder == file
    assert model.params.keys() == leaves.keys()
    for path, leaf in leaves.items():
        np.testing.assert_array_equal(model.params[path], leaf, err_msg=path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_of_a_file_stays_in_memory_once_it_is_read(file, leaves):
    model = load_model(file)
    assert model.params.keys() == leaves.keys() and str(file) not in Path("/proc/self/maps").read_text()


def test_an_untied_head(tmp_path):
    config = CONFIG | {"tie_word_embeddings": False}
    leaves = leaves_of(config)
    tensors = gguf_tensors(join_tensors(leaves, leaf_specs(parse_architecture(config))))
    model = load_model(write_gguf(tmp_path / "m.gguf", tensors, METADATA))
    assert not model.arch.tie_word_embeddings
    np.testing.assert_array_equal(model.params["lm_head.weight"], leaves["lm_head.weight"])


@pytest.mark.parametrize(("kind", "error"), [("F16", 2e-3), ("Q8_0", 2e-2), ("Q4_1", 0.3)])
def test_matrices_may_be_stored_in_fewer_bits(tmp_path, tensors, leaves, kind, error):
    model = load_model(write_gguf(tmp_path / "m.gguf", tensors, METADATA, kind))
    for path, leaf in leaves.items():
        off = np.abs(model.params[path] - leaf).max()
        assert (error / 20 < off < error) if leaf.ndim > 1 else off == 0, (path, off)


def test_other_types_are_refused_with_what_is_supported(tmp_path, tensors):
    text = refusal(write_gguf(tmp_path / "m.gguf", tensors, METADATA, "Q4_0"))
    assert "tensors of type Q4_0; supported: F32, F16, Q8_0, Q4_1" in text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"general.architecture": "qwen2"}, "general.architecture is 'qwen2'; supported: llama"),
        ({"llama.expert_count": 8}, "llama.expert_count is set; supported: dense models"),
        ({"llama.rope.freq_base": None, "llama.block_count": None}, "llama.block_count, llama.rope.freq_base missing"),
        ({"llama.rope.scaling.type": "yarn"}, "rope_scaling.rope_type is 'yarn'; supported: default, llama3"),
        ({"llama.rope.dimension_count": 8}, "partial_rotary_factor is 0.5; supported: 1"),
        ({"llama.block_count": 3}, "missing model.layers.2.input_layernorm.weight"),
    ],
)
def test_other_models_are_refused(tmp_path, tensors, change, expected):
    assert expected in refusal(write_gguf(tmp_path / "m.gguf", tensors, METADATA | change))


def test_a_tensor_that_is_not_known_is_named(tmp_path, tensors):
    tensors["blk.0.attn_q.bias"] = np.zeros(64, np.float32)
    assert "unexpected blk.0.attn_q.bias" in refusal(write_gguf(tmp_path / "m.gguf", tensors, METADATA))


def test_what_follows_from_other_keys_may_be_absent(tmp_path, tensors):
    change = {"llama.rope.dimension_count": None, "llama.vocab_size": None}
    tokens = {"tokenizer.ggml.tokens": [f"t{i}" for i in range(48)]}
    assert load_model(write_gguf(tmp_path / "m.gguf", tensors, METADATA | change | tokens)).arch.vocab_size == 48


def test_padding_of_the_vocabulary_is_not_sampled(tmp_path, tensors):
    kinds = {"tokenizer.ggml.token_type": [3, 5, *[1] * 40, *[5] * 6]}
    assert load_model(write_gguf(tmp_path / "m.gguf", tensors, METADATA | kinds)).vocab_limit == 42


def test_the_stretch_of_llama_3_1_is_recognised(tmp_path, tensors):
    rope = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = CONFIG | {"rope_theta": 5e5, "rope_scaling": rope | {"original_max_position_embeddings": 8192}}
    stretched, plain = (parse_architecture(config | change) for change in ({}, {"rope_scaling": None}))
    divisors = frequencies(plain) / frequencies(stretched)
    assert divisors[0] == 1 and divisors[-1] == 32
    metadata = METADATA | {"llama.rope.freq_base": 5e5}
    arch = load_model(write_gguf(tmp_path / "m.gguf", tensors | {"rope_freqs.weight": divisors}, metadata)).arch
    assert arch == stretched
    other = tensors | {"rope_freqs.weight": np.linspace(1, 32, 8, dtype=np.float32)}
    assert "rope_freqs.weight is not the scaling of" in refusal(write_gguf(tmp_path / "n.gguf", other, metadata))


def test_damaged_files(file):
    content = file.read_bytes()
    for damaged in (b"", b"GGUF", content[:200], content[:-500], b"x" + content[1:]):
        file.write_bytes(damaged)
        assert "is not a readable GGUF file" in refusal(file)


def test_the_package_is_asked_for(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "pip install 'esopt-jax[gguf]'" in refusal(file)


def test_a_folder_may_hold_one_file(file):
    assert find_gguf(file.parent) == file == load_model(file.parent).folder
    (file.parent / "other.gguf").write_bytes(b"")
    assert "holds other.gguf, tiny.gguf; give the path of one of them" in refusal(file.parent)
    (file.parent / "config.json").write_text("{}")
    assert find_gguf(file.parent) is None


def test_a_saved_model_is_a_folder(tmp_path, tensors, leaves):
    model = load_model(write_gguf(tmp_path / "m.gguf", tensors, METADATA | TOKENIZER))
    save_params(tmp_path / "out", model.params, model)
    again = load_model(tmp_path / "out")
    assert (again.arch, again.eos_ids) == (model.arch, model.eos_ids) and again.tokenizer_path is not None
    assert all(np.array_equal(again.params[path], leaf) for path, leaf in leaves.items())
    assert json.loads((tmp_path / "out" / "config.json").read_text())["max_position_embeddings"] == 512


def test_a_saved_model_is_written_leaf_by_leaf_as_the_library_would_write_it(tmp_path, tensors, leaves, monkeypatch):
    specs, written = leaf_specs(parse_architecture(CONFIG)), []
    rows = save.tensor_rows

    def counted(leaf, spec):
        written.append(spec.path)
        return rows(leaf, spec)

    monkeypatch.setattr(save, "tensor_rows", counted)
    model = load_model(write_gguf(tmp_path / "m.gguf", tensors, METADATA | TOKENIZER))
    save_params(tmp_path / "out", leaves, model)
    expected = safetensors.numpy.save(join_tensors(leaves, specs), metadata={"format": "pt"})
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == expected
    assert sorted(written) == sorted(leaves)
