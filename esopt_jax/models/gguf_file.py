"""Read a Llama from a GGUF file, the format of llama.cpp: its metadata as a `config.json`, its tensors by their names.

Tensors come out as float32 in the shape and order of a Hugging Face file, whatever they were quantised to. llama.cpp
turns neighbouring dims of a head against each other where Hugging Face turns its two halves, so the rows of queries and
keys lie in another order there; that is undone here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.models.llama import frequencies
from esopt_jax.models.llama_config import Llama3Scaling
from esopt_jax.models.registry import parse_architecture

TYPES = ("F32", "F16", "Q8_0", "Q4_1")
"""What tensors may be stored as."""

UNUSED = 5
"""Type of a token that only pads the vocabulary."""

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_STRETCH = "rope_freqs.weight"
_NEEDED = {
    "hidden_size": "llama.embedding_length",
    "intermediate_size": "llama.feed_forward_length",
    "num_hidden_layers": "llama.block_count",
    "num_attention_heads": "llama.attention.head_count",
    "max_position_embeddings": "llama.context_length",
    "rms_norm_eps": "llama.attention.layer_norm_rms_epsilon",
    "rope_theta": "llama.rope.freq_base",
}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor in the file, read when asked for; between two reads nothing of it is in memory.

    Attributes:
        path: the file.
        offset: where its bytes begin there.
        kind: of the package's tensor types.
        shape: as a Hugging Face file has it.
        heads: how many heads its rows are, where they lie in llama.cpp's order; else 0.
        dtype: name of the type in which it is read.
    """

    path: Path
    offset: int
    kind: Any
    shape: tuple[int, ...]
    heads: int = 0
    dtype: str = "F32"

    def array(self) -> np.ndarray:
        """Its values, float32."""
        from gguf import dequantize, quant_shape_to_byte_shape

        rows = quant_shape_to_byte_shape(self.shape, self.kind)
        stored = np.memmap(self.path, np.uint8, "r", self.offset, rows)
        values = dequantize(stored, self.kind).reshape(self.shape)
        if np.shares_memory(values, stored):
            values = np.array(values)
        if self.heads:
            values = values.reshape(self.heads, -1, 2, *self.shape[1:]).swapaxes(1, 2).reshape(self.shape)
        return values


@dataclass(frozen=True)
class GgufFile:
    """What a GGUF file holds.

    Attributes:
        config: as the model's `config.json` would have it.
        tensors: by the names of a Hugging Face file; one that is not known there keeps its own.
        vocab_limit: ids from here on are padding of the vocabulary.
    """

    config: dict[str, Any]
    tensors: dict[str, GgufTensor]
    vocab_limit: int


def find_gguf(path: str | Path) -> Path | None:
    """The GGUF file that `path` names: the file itself, or the only one in a folder without `config.json`.

    Raises:
        EsoptError: a folder with several.

    Example:
        >>> find_gguf("no/such/model.gguf"), find_gguf("builtin:sudoku-4x4")
        (None, None)
    """
    path = Path(path).expanduser()
    if path.is_file():
        return path if path.suffix == ".gguf" else None
    if not path.is_dir() or (path / "config.json").is_file():
        return None
    files = sorted(path.glob("*.gguf"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise EsoptError(f"model folder {str(path)!r} holds {names}; give the path of one of them")
    return files[0] if files else None


def read_gguf(path: Path) -> GgufFile:
    """The header of the file at `path`; tensors are read when asked for.

    Raises:
        EsoptError: no GGUF file, no Llama, or something in it that is not supported.
    """
    fields, stored = open_gguf(path)
    found = []
    if (kind := fields.get("general.architecture")) != "llama":
        found.append(f"general.architecture is {kind!r}; supported: llama")
    elif missing := [key for key in _NEEDED.values() if key not in fields]:
        found.append(f"{', '.join(missing)} missing")
    if fields.get("llama.expert_count"):
        found.append("llama.expert_count is set; supported: dense models")
    if other := sorted({tensor.kind.name for tensor in stored.values()} - set(TYPES)):
        found.append(f"tensors of type {', '.join(other)}; supported: {', '.join(TYPES)}")
    if found:
        raise EsoptError(f"{path}: " + "; ".join(found))
    config = _config(fields, stored, path)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for given, tensor in stored.items():
        name, part = _hf_name(given)
        if given != _STRETCH:
            tensors[name] = dataclasses.replace(tensor, heads=heads.get(part, 0))
    return GgufFile(config, tensors, _vocab_limit(fields, config["vocab_size"]))


def open_gguf(path: Path) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    """Metadata and tensors of the file at `path`, by the names that they have there.

    Raises:
        EsoptError: the package is not installed, or this is no GGUF file.
    """
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise EsoptError(f"{path} needs the package gguf; install it with pip install 'esopt-jax[gguf]'") from None
    try:
        state = path.stat()
        return _opened(path, state.st_mtime_ns, state.st_size)
    except Exception as fault:  # whatever a damaged file leads to
        raise EsoptError(f"{path} is not a readable GGUF file: {' '.join(str(fault).split())}") from None


@lru_cache(maxsize=1)
def _opened(path: Path, modified: int, size: int) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    """Kept, since a model, its tokenizer and its copies each need it, and the package takes seconds."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    tensors = {
        tensor.name: GgufTensor(path, tensor.data_offset, tensor.tensor_type, tuple(map(int, reversed(tensor.shape))))
        for tensor in reader.tensors
    }
    return {name: field.contents() for name, field in reader.fields.items()}, tensors


def _hf_name(name: str) -> tuple[str, str]:
    """The name in a Hugging Face file, and the part of a layer that it is."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        layer, part = match.groups()
        if part in _NAMES:
            return f"model.layers.{layer}.{_NAMES[part]}.weight", part
    part = name.removesuffix(".weight")
    return (f"{_NAMES[part]}.weight" if part in _NAMES and "." not in part else name), ""


def _config(fields: Mapping[str, Any], tensors: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The metadata as a `config.json`."""
    given = {name: _plain(fields[key]) for name, key in _NEEDED.items()}
    heads = given["num_attention_heads"]
    head_dim = fields.get("llama.attention.key_length", given["hidden_size"] // heads)
    ends = (fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **given,
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": fields.get("llama.vocab_size", len(fields.get("tokenizer.ggml.tokens", ()))),
        "rope_scaling": None,
        "partial_rotary_factor": fields.get("llama.rope.dimension_count", head_dim) / head_dim,
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in tensors,
        # Not in the file, and read for fresh weights alone: the usual one over the root of the width.
        "initializer_range": given["hidden_size"] ** -0.5,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": sorted({end for end in ends if end is not None}),
        "dtype": "float32",
    }
    if fields.get("llama.rope.scaling.type", "none") != "none":
        config["rope_scaling"] = {"rope_type": fields["llama.rope.scaling.type"]}
    if config["partial_rotary_factor"] == 1.0:
        del config["partial_rotary_factor"]
    if _STRETCH in tensors:
        config["rope_scaling"] = _scaling(tensors[_STRETCH].array(), config, path)
    return config


def _plain(value: Any) -> Any:
    """A number of the file; the shortest decimal of a float32, which is what was meant: 1e-05, not 9.99999975e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _scaling(divisors: np.ndarray, config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The scaling of Llama 3.1 that divides frequencies by `divisors`, which is all that the file says of it."""
    scaling = Llama3Scaling(float(np.max(divisors)), 1.0, 4.0, 8192)
    section = {"rope_type": "llama3", **dataclasses.asdict(scaling)}
    plain, stretched = (frequencies(parse_architecture({**config, "rope_scaling": rope})) for rope in (None, section))
    if divisors.shape != plain.shape or not np.allclose(divisors, plain / stretched, rtol=1e-4):
        raise EsoptError(f"{path}: {_STRETCH} is not the scaling of Llama 3.1, 3.2 or 3.3; supported: that or none")
    return section


def _vocab_limit(fields: Mapping[str, Any], vocab_size: int) -> int:
    kinds = fields.get("tokenizer.ggml.token_type")
    if kinds is None:
        return vocab_size
    return min(vocab_size, 1 + max(i for i, kind in enumerate(kinds) if kind != UNUSED))
