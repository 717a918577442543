"""Parity tests compare with transformers' torch models: skipped without torch, unless they are required.

Each module here starts with `torch = pytest.importorskip("torch", reason=...)`.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None and os.environ.get("ESOPT_REQUIRE_PARITY"):
    raise RuntimeError("ESOPT_REQUIRE_PARITY is set but torch is not installed: pip install -e '.[parity]'")

QWEN = {
    # kv heads unlike query heads, three value heads a key head and Dk unlike Dv: a wrong repeat or transposition shows
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    },
}
LLAMA = {"vocab_size": 128, "intermediate_size": 96, "num_key_value_heads": 2, "max_position_embeddings": 512}
VARIANTS = {
    "qwen-tied": ("Qwen3_5", QWEN | {"num_hidden_layers": 4, "tie_word_embeddings": True}),
    "qwen-untied": (
        "Qwen3_5",
        QWEN
        | {  # with layers in an order that no interval gives
            "num_hidden_layers": 2,
            "layer_types": ["full_attention", "linear_attention"],
            "tie_word_embeddings": False,
        },
    ),
    "llama-tied": (
        "Llama",
        LLAMA
        | {  # heads wider than their share of the stream; waves of all three kinds inside the texts of the tests
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "head_dim": 32,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "llama-untied": (
        "Llama",
        LLAMA
        | {
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
        },
    ),
}


@dataclass(frozen=True)
class Pair:
    """One random model on both sides: `theirs` is transformers', `ours` what `load_model` reads from `folder`."""

    theirs: Any
    ours: Any
    folder: Path

    def logits(self, ids: Any) -> np.ndarray:
        """Their logits of the unpadded batch `ids: [B, T]`, `[B, T, V]`."""
        import torch

        return self.theirs(torch.as_tensor(np.asarray(ids))).logits.numpy()


def make_pair(folder: Path, variant: str) -> Pair:
    import torch
    import transformers

    from esopt_jax.models.load import load_model

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    family, shape = VARIANTS[variant]
    text_config = "Qwen3_5TextConfig" if family == "Qwen3_5" else f"{family}Config"
    config = getattr(transformers, text_config)(**shape)
    config._attn_implementation = "eager"
    theirs = getattr(transformers, f"{family}ForCausalLM")(config).eval().float()
    for name, weight in theirs.named_parameters():
        if "norm" in name or "dt_bias" in name:  # these start constant, which hides mistakes
            weight.add_(0.3 * torch.randn_like(weight))
        elif "A_log" not in name:
            weight.mul_(3.0)
    theirs.save_pretrained(folder)
    return Pair(theirs, load_model(folder), folder)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`pairs(variant)`, each made once."""
    return cache(lambda variant: make_pair(tmp_path_factory.mktemp(variant) / "model", variant))


@pytest.fixture(scope="session")
def qwen(pairs: Any) -> Pair:
    return pairs("qwen-tied")


@pytest.fixture(scope="session")
def llama(pairs: Any) -> Pair:
    return pairs("llama-tied")


@pytest.fixture(params=["qwen-tied", "llama-tied"])
def tied(request: pytest.FixtureRequest, pairs: Any) -> Pair:
    return pairs(request.param)


@pytest.fixture(params=list(VARIANTS))
def pair(request: pytest.FixtureRequest, pairs: Any) -> Pair:
    return pairs(request.param)
