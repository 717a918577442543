"""The Hugging Face folder of the tiny base: its architecture as `config.json`, its end ids, its weights."""

import json
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
from tokenizer import VOCABULARY, token_ids, write_tokenizer

from esopt_jax.models.layout import join_tensors
from esopt_jax.models.qwen3_5_config import FULL, LINEAR
from esopt_jax.models.save import write_folder
from esopt_jax.types import Specs

PAD, END = token_ids("<|endoftext|>", "<|im_end|>")

CONFIG = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "dtype": "float32",
    "eos_token_id": END,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 48,
    "initializer_range": 0.02,
    "intermediate_size": 96,
    "layer_types": [LINEAR, FULL, FULL],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 16,
    "max_position_embeddings": 1024,
    "model_type": "qwen3_5_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "pad_token_id": PAD,
    "rms_norm_eps": 1e-06,
    # A prompt has 30 tokens: a base of 100 and full rotation let every pair of dimensions tell its positions apart.
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [4, 2, 2],
        "partial_rotary_factor": 1.0,
        "rope_theta": 100.0,
        "rope_type": "default",
    },
    "tie_word_embeddings": True,
    "transformers_version": "5.24.0",  # whose layout of the folder this is
    "use_cache": True,
    "vocab_size": len(VOCABULARY),
}
GENERATION_CONFIG = {
    "do_sample": True,
    "eos_token_id": [END, PAD],
    "pad_token_id": PAD,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "transformers_version": "5.24.0",
}


def write_model(folder: Path, params: Mapping[str, jax.Array], specs: Specs) -> None:
    """Write everything that `transformers` and `load_model` need into `folder`, created when absent."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("config", CONFIG), ("generation_config", GENERATION_CONFIG)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_tokenizer(folder)
    leaves = {path: np.asarray(leaf) for path, leaf in params.items()}
    write_folder(folder, join_tensors(leaves, specs), source=folder)
