"""Writing a model folder without torch: bytes, companions, refusals."""

from __future__ import annotations

import ml_dtypes
import pytest
from safetensors.numpy import load_file

from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.models.save import save_params


def test_tensors_and_companions_come_back(write, config, tensors, tmp_path):
    tensors = {
        name: x if name.endswith(("A_log", "linear_attn.norm.weight")) else x.astype(ml_dtypes.bfloat16)
        for name, x in tensors.items()
    }
    folder = write(config, tensors)
    (folder / "generation_config.json").write_text('{"eos_token_id": 4}')
    (folder / "model.safetensors.index.json").write_text("{}")
    model = load_model(folder)
    save_params(tmp_path / "new" / "out", model.params, model)
    found = load_file(tmp_path / "new" / "out" / "model.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].tobytes() == tensor.tobytes(), name
    names = sorted(file.name for file in (tmp_path / "new" / "out").iterdir())
    assert names == ["config.json", "generation_config.json", "model.safetensors"]


def test_a_model_can_replace_itself(write, config):
    folder = write(config)
    model = load_model(folder)
    save_params(folder, {path: leaf + 1 for path, leaf in model.params.items()}, model, replace=True)
    assert (load_model(folder).params["norm.weight"] == model.params["norm.weight"] + 1).all()


def test_wrong_leaves_are_all_named(write, config, tmp_path):
    model = load_model(write(config))
    params = dict(model.params)
    del params["norm.weight"]
    params["more"] = params["embed_tokens.weight"]
    params["layers.0.linear_attn.A_log"] = params["embed_tokens.weight"]
    with pytest.raises(EsoptError) as caught:
        save_params(tmp_path / "out", params, model)
    text = str(caught.value)
    assert "missing norm.weight" in text and "unknown more" in text
    assert "layers.0.linear_attn.A_log is [48, 16] instead of [3]" in text
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(write, config, tmp_path):
    model = load_model(write(config))
    (tmp_path / "file").write_text("")
    for replace in (False, True):
        with pytest.raises(EsoptError, match="cannot write a model to"):
            save_params(tmp_path / "file" / "out", model.params, model, replace=replace)
