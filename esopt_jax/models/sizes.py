"""The text configs of published models, as their `config.json` has them, so that a plan needs no file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _qwen(
    width: int,
    layers: int,
    mlp: int,
    heads: tuple[int, int],
    delta_heads: tuple[int, int],
    *,
    tied: bool,
) -> dict[str, Any]:
    """A Qwen3.5; `heads` are query and key-value heads, `delta_heads` the key and value heads of DeltaNet layers."""
    return {
        "model_type": "qwen3_5_text",
        "vocab_size": 248_320,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "full_attention_interval": 4,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": 256,
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_num_key_heads": delta_heads[0],
        "linear_num_value_heads": delta_heads[1],
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "tie_word_embeddings": tied,
    }


PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "qwen3.5-0.8b": _qwen(1024, 24, 3584, (8, 2), (16, 16), tied=True),
    "qwen3.5-2b": _qwen(2048, 24, 6144, (8, 2), (16, 16), tied=True),
    "qwen3.5-4b": _qwen(2560, 32, 9216, (16, 4), (16, 32), tied=True),
    "qwen3.5-9b": _qwen(4096, 32, 12288, (16, 4), (16, 32), tied=False),
    "qwen3.5-27b": _qwen(5120, 64, 17408, (24, 4), (16, 48), tied=False),
    "llama-3.1-8b": {
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
    },
    "smollm2-135m": {
        "model_type": "llama",
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100_000,
        "hidden_act": "silu",
        "initializer_range": 0.041666666666666664,
        "tie_word_embeddings": True,
    },
}


def published_name(path: str) -> str | None:
    """The size that a name of it or of its hub repository means; None where the name says nothing.

    Example:
        >>> [published_name(path) for path in ("qwen3.5-4b", "Qwen/Qwen3.5-27B-Base@main", "Qwen/Qwen3.5-27B-FP8")]
        ['qwen3.5-4b', 'qwen3.5-27b', None]
    """
    name = path.partition("@")[0].rpartition("/")[2].lower()
    for ending in ("-instruct", "-base"):
        name = name.removesuffix(ending)
    return name if name in PUBLISHED else None
