"""What a `config.json` says about a model, as a frozen, hashable value.

Every number comes from the file. A default would be some other model's number: the class defaults in `transformers` are
those of one size, so a missing field is an error here and never a guess.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from esopt_jax.errors import EsoptError

SUPPORTED = ("qwen3_5", "qwen3_5_text")
LINEAR, FULL = "linear_attention", "full_attention"


@dataclass(frozen=True)
class Architecture:
    """Shapes and constants of a Qwen3.5 text decoder, under the names that `config.json` gives them.

    Attributes:
        layer_types: `"linear_attention"` (Gated DeltaNet) or `"full_attention"` (gated attention), one per layer.
        rope_theta: base of the rotary frequencies.
        rotary_dim: how many leading dimensions of a head are rotated: `head_dim * partial_rotary_factor`.
        initializer_range: standard deviation of freshly drawn matrices.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    rms_norm_eps: float
    rope_theta: float
    rotary_dim: int
    tie_word_embeddings: bool
    initializer_range: float

    @property
    def query_groups(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def value_groups(self) -> int:
        """DeltaNet value heads that share one key head."""
        return self.linear_num_value_heads // self.linear_num_key_heads


def read_architecture(folder: str | Path) -> Architecture:
    """The architecture of the model in `folder`, from its `config.json`.

    Raises:
        EsoptError: no such file, not JSON, an unsupported model type, or any missing or contradictory field.
    """
    return parse_architecture(read_json(Path(folder) / "config.json"))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; a file that is absent, unreadable or holds something else is an `EsoptError`."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise EsoptError(f"{path} cannot be read; a model folder must hold {path.name}") from None
    except ValueError as fault:
        raise EsoptError(f"{path} is not valid JSON: {' '.join(str(fault).split())}") from None
    if not isinstance(tree, dict):
        raise EsoptError(f"{path} holds {type(tree).__name__}; it must hold a JSON object")
    return tree


def parse_architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture that a parsed `config.json` describes; a `text_config` section wins over the top level.

    Raises:
        EsoptError: with every problem of the file in one message.
    """
    text = config.get("text_config") or config
    if not isinstance(text, Mapping):
        raise EsoptError(f"config.json: text_config is {text!r}; it must be a section with fields")
    kind = text.get("model_type", config.get("model_type"))
    if kind not in SUPPORTED:
        raise EsoptError(f"model_type {kind!r} is not supported; supported: {', '.join(SUPPORTED)} (dense text models)")
    # Only the tie may live at the top level alone: older multimodal files write it there and nowhere else.
    given = {"tie_word_embeddings": config.get("tie_word_embeddings"), **text}
    given.update(_rope_fields(given))
    given["layer_types"] = _layer_types(given)
    hints = get_type_hints(Architecture)
    found = [p for f in fields(Architecture) if (p := _problem(f.name, given.get(f.name), hints[f.name]))]
    if found:
        raise EsoptError("config.json: " + "; ".join(found))
    architecture = Architecture(**{f.name: given[f.name] for f in fields(Architecture)})
    found = _contradictions(architecture, given)
    if found:
        raise EsoptError("config.json: " + "; ".join(found))
    return architecture


def _rope_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    rope = given.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return {}
    factor, head_dim = rope.get("partial_rotary_factor"), given.get("head_dim")
    known = isinstance(factor, int | float) and isinstance(head_dim, int)
    return {"rope_theta": rope.get("rope_theta"), "rotary_dim": int(head_dim * factor) if known else None}


def _layer_types(given: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The explicit list; else one full layer at the end of every `full_attention_interval`."""
    explicit, interval, depth = (given.get(n) for n in ("layer_types", "full_attention_interval", "num_hidden_layers"))
    if isinstance(explicit, list | tuple):
        return tuple(explicit)
    if isinstance(interval, int) and isinstance(depth, int) and interval > 0:
        return tuple(FULL if (i + 1) % interval == 0 else LINEAR for i in range(depth))
    return None


_SOURCE = {
    "rope_theta": "rope_parameters.rope_theta",
    "rotary_dim": "rope_parameters.partial_rotary_factor",
    "layer_types": "layer_types (or full_attention_interval)",
}


def _problem(name: str, value: Any, kind: Any) -> str | None:
    source = _SOURCE.get(name, name)
    if value is None:
        return f"{source} is missing"
    if kind is bool:
        return None if isinstance(value, bool) else f"{source} is {value!r}; it must be true or false"
    if kind in (int, float):
        whole = isinstance(value, int) and not isinstance(value, bool)
        ok = whole or (kind is float and isinstance(value, float) and math.isfinite(value))
        return None if ok and value > 0 else f"{source} is {value!r}; it must be a positive number"
    wrong = sorted({str(t) for t in value} - {LINEAR, FULL})
    return f"{source} has {', '.join(wrong)}; allowed: {LINEAR}, {FULL}" if wrong else None


def _whole_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _contradictions(a: Architecture, given: Mapping[str, Any]) -> list[str]:
    found = []

    def check(ok: bool, text: str) -> None:
        if not ok:
            found.append(text)

    rope = given["rope_parameters"]
    sections, kind = rope.get("mrope_section"), rope.get("rope_type")
    check(
        len(a.layer_types) == a.num_hidden_layers, f"{len(a.layer_types)} layer_types for {a.num_hidden_layers} layers"
    )
    check(
        a.num_attention_heads % a.num_key_value_heads == 0,
        "num_attention_heads must be a multiple of num_key_value_heads",
    )
    check(
        a.linear_num_value_heads % a.linear_num_key_heads == 0,
        "linear_num_value_heads must be a multiple of linear_num_key_heads",
    )
    check(a.rotary_dim % 2 == 0, f"the rotated part of a head is {a.rotary_dim} wide; it must be even")
    check(a.linear_conv_kernel_dim >= 2, "linear_conv_kernel_dim must be at least 2")
    # With text alone the three position axes agree and multimodal rope is plain rope, provided the sections fill it.
    check(
        sections is None or (_whole_numbers(sections) and 2 * sum(sections) == a.rotary_dim),
        f"mrope_section {sections} must sum to {a.rotary_dim // 2}",
    )
    check(kind == "default", f"rope_parameters.rope_type is {kind!r}; supported: default")
    check(given.get("hidden_act") == "silu", f"hidden_act is {given.get('hidden_act')!r}; supported: silu")
    check(not given.get("attention_bias"), "attention_bias is set; supported: false")
    check(given.get("attn_output_gate", True), "attn_output_gate is off; supported: true")
    return found
