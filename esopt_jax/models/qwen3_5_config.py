"""The architecture of a Qwen3.5 text decoder and how its `config.json` is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from esopt_jax.models.architecture import Architecture, common_problems, field_problems, refuse, taken

MODEL_TYPES = ("qwen3_5", "qwen3_5_text")
LINEAR, FULL = "linear_attention", "full_attention"


@dataclass(frozen=True)
class Qwen35(Architecture):
    """Shapes and constants of a Qwen3.5 text decoder.

    Attributes:
        layer_types: `"linear_attention"` (Gated DeltaNet) or `"full_attention"` (gated attention), one per layer.
        rotary_dim: how many leading dimensions of a head are rotated: `head_dim * partial_rotary_factor`.
    """

    layer_types: tuple[str, ...]
    rotary_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int

    @property
    def value_groups(self) -> int:
        """DeltaNet value heads that share one key head."""
        return self.linear_num_value_heads // self.linear_num_key_heads


def parse(config: Mapping[str, Any]) -> Qwen35:
    """The architecture that the fields of a text config describe.

    Raises:
        EsoptError: with every problem of the file in one message.
    """
    given = {**config, **_rope_fields(config), "layer_types": _layer_types(config)}
    refuse(field_problems(Qwen35, given, _SOURCES) + _unknown_layers(given["layer_types"]))
    architecture = taken(Qwen35, given)
    refuse(_contradictions(architecture, given) + common_problems(architecture, given))
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


_SOURCES = {
    "rope_theta": "rope_parameters.rope_theta",
    "rotary_dim": "rope_parameters.partial_rotary_factor",
    "layer_types": "layer_types (or full_attention_interval)",
}


def _unknown_layers(kinds: tuple[str, ...] | None) -> list[str]:
    wrong = sorted({str(kind) for kind in kinds or ()} - {LINEAR, FULL})
    return [f"{_SOURCES['layer_types']} has {', '.join(wrong)}; allowed: {LINEAR}, {FULL}"] if wrong else []


def _whole_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _contradictions(a: Qwen35, given: Mapping[str, Any]) -> list[str]:
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
    check(given.get("attn_output_gate", True), "attn_output_gate is off; supported: true")
    return found
