"""GGUF files of small Llamas, written as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CONFIG = {
    "model_type": "llama",
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "initializer_range": 32**-0.5,
}
METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.key_length": 16,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": 16,
    "llama.vocab_size": 48,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.eot_token_id": 5,
}
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
VOCABULARY = ["<|a|>", "<|b|>", "<|end|>", "<think>", "Ċ", "Ġ", "1", "2", "x", "ĊĊ", "ĠĠ", "Ġx", "Ġ1"]
TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": VOCABULARY,
    "tokenizer.ggml.token_type": [3, 3, 3, 4, *[1] * 9],
    "tokenizer.ggml.merges": ["Ċ Ċ", "Ġ Ġ", "Ġ x", "Ġ 1"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.chat_template": (
        "{% for m in messages %}{{ bos_token }}{{ m['content'] }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ bos_token }}{% endif %}"
    ),
}


def gguf_tensors(tensors: dict[str, np.ndarray], *, heads: int = 4, kv_heads: int = 2) -> dict[str, np.ndarray]:
    """Tensors of a Hugging Face file under llama.cpp's names and in its order."""
    found = {}
    for name, tensor in tensors.items():
        if name.startswith("model.layers."):
            index, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
            if part.endswith(("q_proj", "k_proj")):
                tensor = neighbours(tensor, heads if part.endswith("q_proj") else kv_heads)
            found[f"blk.{index}.{NAMES[part]}.weight"] = tensor
        else:
            top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
            found[top[name.removesuffix(".weight")] + ".weight"] = tensor
    return found


def neighbours(tensor: np.ndarray, heads: int) -> np.ndarray:
    """Rows with the two dims that rope turns against each other side by side, row by row."""
    width = len(tensor) // heads
    order = [
        head * width + dim + half * (width // 2)
        for head in range(heads)
        for dim in range(width // 2)
        for half in (0, 1)
    ]
    return tensor[order]


def write_gguf(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, Any], kind: str = "F32") -> Path:
    """A GGUF file; matrices are stored as `kind`, vectors as float32."""
    import gguf

    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        if key != "general.architecture" and value is not None:
            add.get(type(value), writer.add_array)(key, value)
    for name, tensor in tensors.items():
        quant = gguf.GGMLQuantizationType["F32" if tensor.ndim == 1 else kind]
        writer.add_tensor(name, gguf.quantize(tensor, quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
