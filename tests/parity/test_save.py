"""What we write, transformers loads; what we did not touch comes back byte for byte."""

from __future__ import annotations

import shutil

import jax
import numpy as np
import pytest
from gguf_files import CONFIG, METADATA, TOKENIZER, gguf_tensors, write_gguf

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[parity]'")

from safetensors.numpy import load_file, save_file  # noqa: E402

from esopt_jax.models.init import init_params  # noqa: E402
from esopt_jax.models.layout import join_tensors  # noqa: E402
from esopt_jax.models.load import load_model  # noqa: E402
from esopt_jax.models.registry import leaf_specs, parse_architecture, score  # noqa: E402
from esopt_jax.models.save import save_params  # noqa: E402

pytestmark = pytest.mark.parity


def read_back(folder):
    """The model in `folder` by transformers, which must find every tensor and no other."""
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return model.eval()


def raw_tensors(folder):
    return {name: (x.dtype, x.shape, x.tobytes()) for name, x in load_file(folder / "model.safetensors").items()}


def test_an_untouched_model_comes_back_byte_for_byte(pair, tmp_path):
    save_params(tmp_path / "out", pair.ours.params, pair.ours)
    assert raw_tensors(tmp_path / "out") == raw_tensors(pair.folder)
    ids = torch.arange(20)[None]
    assert torch.equal(read_back(tmp_path / "out")(ids).logits, pair.theirs(ids).logits)


def test_changed_weights_change_their_model_as_they_change_ours(pair, tmp_path):
    changed = {path: leaf * 1.25 + 0.01 for path, leaf in pair.ours.params.items()}
    save_params(tmp_path / "out", changed, pair.ours)
    expected = {name: 1.25 * x + 0.01 for name, x in load_file(pair.folder / "model.safetensors").items()}
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, rtol=1e-6, atol=1e-7)
    read_back(tmp_path / "out")


def test_bfloat16_files_keep_their_bits(tied, tmp_path):
    source = tmp_path / "half"
    tied.theirs.__class__.from_pretrained(tied.folder, dtype=torch.bfloat16).save_pretrained(source)
    model = load_model(source)
    assert {str(dtype) for dtype in model.dtypes.values()} == {"bfloat16"}
    save_params(tmp_path / "out", model.params, model)
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 1.1 * (source / "model.safetensors").stat().st_size
    for name, tensor in read_back(tmp_path / "out").state_dict().items():
        assert torch.equal(tensor, tied.theirs.state_dict()[name].bfloat16().float()), name


def test_a_repeated_table_of_a_tied_model_follows_the_table(tied, tmp_path):
    folder = tmp_path / "repeated"
    shutil.copytree(tied.folder, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = load_model(folder)
    assert "lm_head.weight" not in model.params
    save_params(tmp_path / "out", model.params, model)
    assert raw_tensors(tmp_path / "out") == raw_tensors(folder)
    save_params(tmp_path / "more", {path: leaf + 1 for path, leaf in model.params.items()}, model)
    found = load_file(tmp_path / "more" / "model.safetensors")
    np.testing.assert_array_equal(found["lm_head.weight"], tensors["lm_head.weight"] + 1)
    np.testing.assert_array_equal(found["model.embed_tokens.weight"], found["lm_head.weight"])


def test_a_model_from_gguf_becomes_a_folder(tmp_path):
    specs = leaf_specs(parse_architecture(CONFIG))
    leaves = init_params(jax.random.key(0), specs, std=0.2)
    tensors = gguf_tensors(join_tensors({path: np.asarray(leaf) for path, leaf in leaves.items()}, specs))
    metadata = METADATA | TOKENIZER | {"llama.vocab_size": 48}
    model = load_model(write_gguf(tmp_path / "m.gguf", tensors, metadata))
    save_params(tmp_path / "out", model.params, model)
    ids = np.arange(20)[None]
    ours = jax.jit(score, static_argnames="arch")(model.params, ids, np.array([20]), arch=model.arch)
    theirs = read_back(tmp_path / "out")(torch.as_tensor(ids)).logits.numpy()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-5)
    assert np.abs(theirs).max() > 0.5
