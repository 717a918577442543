"""Checkpoints as the hub has them: several files, a multimodal root, parts that are not the decoder's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[parity]'")

from safetensors.torch import load_file, save_file  # noqa: E402

from esopt_jax.models.load import load_model, open_model  # noqa: E402
from esopt_jax.models.registry import score  # noqa: E402
from esopt_jax.models.save import save_params  # noqa: E402

pytestmark = pytest.mark.parity

TOLERANCE = 5e-5
"""On logits of scale 3, float32."""
TEXT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "eos_token_id": 5,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    },
}
VISION = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
IDS = np.random.default_rng(3).integers(0, 128, (2, 70))
score_jit = jax.jit(score, static_argnames="arch")


def make_checkpoint(folder: Path, *, root: str, tied: bool, dtype: str) -> Path:
    """Several files by `save_pretrained`, and one more with the multi-token head, which transformers never writes."""
    from transformers import Qwen3_5Config, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration, Qwen3_5TextConfig

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    text = TEXT | {"tie_word_embeddings": tied}
    if root == "text":
        model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**text))
    else:
        config = Qwen3_5Config(text_config=text, vision_config=VISION, tie_word_embeddings=tied)
        model = Qwen3_5ForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if "norm" in name or "dt_bias" in name:  # these start constant, which hides mistakes
            weight.add_(0.3 * torch.randn_like(weight))
        elif "A_log" not in name:
            weight.mul_(3.0)
    if dtype == "bfloat16":
        for name, weight in model.named_parameters():
            if not name.endswith(("A_log", "linear_attn.norm.weight")):
                weight.data = weight.data.bfloat16()
    model.save_pretrained(folder, max_shard_size="60KB")
    index = folder / "model.safetensors.index.json"
    tree = json.loads(index.read_text())
    assert len(set(tree["weight_map"].values())) > 3
    extra = {"mtp.fc.weight": torch.randn(64, 128).bfloat16(), "mtp.layers.0.mlp.up_proj.weight": torch.randn(96, 64)}
    save_file(extra, folder / "model-mtp.safetensors", metadata={"format": "pt"})
    tree["weight_map"] |= dict.fromkeys(extra, "model-mtp.safetensors")
    index.write_text(json.dumps(tree, indent=2))
    return folder


def theirs(folder: Path) -> Any:
    """The text model in `folder` by transformers, which must find every tensor and no other."""
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return model.eval()


def logits(folder: Path) -> np.ndarray:
    return theirs(folder)(torch.as_tensor(IDS)).logits.numpy()


def raw(folder: Path) -> dict[str, bytes]:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, x in load_file(file).items():
            found[name] = (file.name, str(x.dtype), tuple(x.shape), x.contiguous().view(torch.uint8).numpy().tobytes())
    return found


@pytest.fixture(
    scope="module",
    params=[
        ("text", True, "float32"),
        ("text", False, "float32"),
        ("multimodal", True, "float32"),
        ("multimodal", False, "bfloat16"),
    ],
    ids=lambda p: f"{p[0]}-{'tied' if p[1] else 'untied'}-{p[2]}",
)
def folder(request, tmp_path_factory):
    root, tied, dtype = request.param
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "model", root=root, tied=tied, dtype=dtype)


def test_the_fixture_is_what_it_claims(folder):
    names = raw(folder)
    multimodal = any(name.startswith("model.visual.") for name in names)
    prefix = "model.language_model." if multimodal else "model."
    assert prefix + "norm.weight" in names and "mtp.fc.weight" in names
    assert json.loads((folder / "config.json").read_text())["model_type"] == (
        "qwen3_5" if multimodal else "qwen3_5_text"
    )


def test_logits_are_those_of_transformers(folder):
    model = load_model(folder)
    expected = logits(folder)
    found = np.asarray(score_jit(model.params, IDS, np.full(2, 70), arch=model.arch))
    assert np.abs(expected).max() > 1
    assert np.abs(found - expected).max() < TOLERANCE
    assert model.eos_ids == (5,)


def test_an_untouched_model_is_exported_byte_for_byte(folder, tmp_path):
    model = open_model(folder)
    save_params(tmp_path / "out", model.params, model)
    assert raw(tmp_path / "out") == raw(folder)
    names = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == names
    np.testing.assert_array_equal(logits(tmp_path / "out"), logits(folder))


def test_a_tuned_model_is_the_same_to_both_and_keeps_what_is_not_the_decoders(folder, tmp_path):
    model = load_model(folder)
    rng = np.random.default_rng(1)
    tuned = {
        path: leaf + 0.02 * rng.standard_normal(leaf.shape).astype(np.float32) for path, leaf in model.params.items()
    }
    save_params(tmp_path / "out", tuned, model)
    before, after = raw(folder), raw(tmp_path / "out")
    other = {name for name in before if name.startswith(("mtp.", "model.visual."))}
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] == after[name]} == other
    assert all(before[name][:3] == after[name][:3] for name in before)
    again = load_model(tmp_path / "out")
    found = np.asarray(score_jit(again.params, IDS, np.full(2, 70), arch=again.arch))
    expected = logits(tmp_path / "out")
    assert np.abs(found - expected).max() < TOLERANCE < np.abs(expected - logits(folder)).max()


def test_the_multimodal_model_loads_the_export_too(tmp_path):
    from transformers import Qwen3_5ForConditionalGeneration

    folder = make_checkpoint(tmp_path / "model", root="multimodal", tied=True, dtype="float32")
    model = open_model(folder)
    save_params(tmp_path / "out", model.params, model)
    _, report = Qwen3_5ForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
