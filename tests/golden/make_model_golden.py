"""Writes `model.npz` and `llama.npz`: logits and greedy replies of transformers for weights made by a NumPy rule.

    pip install -e '.[parity]' && python tests/golden/make_model_golden.py

`tests/models/test_golden.py` compares this package with it where torch is not installed.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

NEW = 16
QWEN = {
    "model_type": "qwen3_5_text",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [1, 1, 0],
        "mrope_interleaved": True,
    },
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "rope_parameters": {  # waves of all three kinds inside the 70 tokens
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
}


def weights(shapes, strength):
    """`{tensor name: shape}` -> float32 tensors; a tensor depends on its name, shape and strength alone."""
    found = {}
    for name, shape in shapes.items():
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
        draw = np.random.Generator(np.random.PCG64(seed)).random(shape)  # uniform: the same bits on every platform
        found[name] = ((draw - 0.5) * (0.5 if len(shape) > 1 else 1.0) * strength).astype(np.float32)
    return found


def main():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.set_num_threads(1)
    write("model.npz", QWEN, Qwen3_5TextConfig, Qwen3_5ForCausalLM, 1.0)
    write("llama.npz", LLAMA, LlamaConfig, LlamaForCausalLM, 2.4)  # its gains are not around 1 here


def write(target, given, config_class, model_class, strength):
    import torch

    config = config_class(**{name: value for name, value in given.items() if name != "model_type"})
    config._attn_implementation = "eager"
    model = model_class(config).eval().float()
    drawn = weights({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, strength)
    model.load_state_dict({name: torch.as_tensor(tensor) for name, tensor in drawn.items()})
    tokens = np.random.Generator(np.random.PCG64(0)).integers(0, given["vocab_size"], (2, 70)).astype(np.int32)
    with torch.inference_mode():
        ids = torch.as_tensor(tokens, dtype=torch.long)
        logits = model(ids).logits.numpy()
        whole = model.generate(
            input_ids=ids[:, :20],
            attention_mask=torch.ones_like(ids[:, :20]),
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    greedy = whole[:, 20:].numpy().astype(np.int32)
    path = Path(__file__).with_name(target)
    found = {"tokens": tokens, "logits": logits, "greedy": greedy}
    np.savez_compressed(path, config=json.dumps(given), strength=strength, **found)


if __name__ == "__main__":
    main()
