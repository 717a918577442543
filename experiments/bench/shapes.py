"""Models of known shapes and random weights."""

from typing import Any

import jax

from esopt_jax.models.architecture import Architecture
from esopt_jax.models.registry import load_architecture, parse_architecture
from esopt_jax.models.sizes import PUBLISHED
from esopt_jax.types import Params, Specs

GPU = "qwen3.5-4b"
"""The published size that is measured on a GPU."""


def hybrid(width: int, *, layers: int, vocab: int, mlp: int, heads: int, head: int) -> Architecture:
    """A Qwen3.5 of other sizes: half as many key-value heads as `heads`, heads of width `head` everywhere."""
    pairs = head // 8  # a quarter of the head turns; two numbers make a pair
    rope: dict[str, Any] = {"mrope_section": [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]}
    return parse_architecture(
        {
            **PUBLISHED[GPU],
            "vocab_size": vocab,
            "hidden_size": width,
            "intermediate_size": mlp,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads // 2,
            "head_dim": head,
            "linear_num_key_heads": heads // 2,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": head,
            "linear_value_head_dim": head,
            "rope_parameters": {**PUBLISHED[GPU]["rope_parameters"], **rope},
        }
    )


def published() -> Architecture:
    """The size that is measured on a GPU."""
    return load_architecture(GPU)


def weights(specs: Specs) -> Params:
    """Something in every leaf; cheap, and never more than one leaf in float32 at once."""
    scaled = jax.jit(lambda key, shape: 0.02 * jax.random.normal(key, shape, jax.numpy.bfloat16), static_argnums=1)
    return {s.path: scaled(jax.random.key(i), s.shape) for i, s in enumerate(specs)}
