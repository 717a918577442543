"""The architecture of a Llama decoder and how its `config.json` is read, in the spellings of transformers 4 and 5.

Three things may be absent from a file and then follow from others by the format's own definition: `head_dim` is
`hidden_size / num_attention_heads`, `num_key_value_heads` is `num_attention_heads`, and a rope without a type is plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from esopt_jax.models.architecture import Architecture, common_problems, field_problems, refuse, taken

MODEL_TYPES = ("llama",)
ROPE_TYPES = ("default", "llama3")


@dataclass(frozen=True)
class Llama3Scaling:
    """How Llama 3.1 stretches its rotary frequencies beyond the length it was first trained on.

    Attributes:
        factor: what frequencies of long wavelength are divided by.
        low_freq_factor: waves that fit into the original length no more often than this are divided in full.
        high_freq_factor: waves that fit at least this often stay as they are; in between the change is gradual.
        original_max_position_embeddings: that length, in tokens.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class Llama(Architecture):
    """Shapes and constants of a Llama decoder.

    Attributes:
        rope_scaling: None where the rotary frequencies are plain.
    """

    rope_scaling: Llama3Scaling | None


def parse(config: Mapping[str, Any]) -> Llama:
    """The architecture that the fields of a `config.json` describe.

    Raises:
        EsoptError: with every problem of the file in one message.
    """
    rope = _rope(config)
    given = {**_derived(config), **rope}
    found = field_problems(Llama, given, {}) + _unsupported(given)
    if given["rope_type"] == "llama3":
        found += field_problems(Llama3Scaling, given, _SCALING_SOURCES)
    refuse(found)
    scaling = taken(Llama3Scaling, given) if given["rope_type"] == "llama3" else None
    architecture = taken(Llama, {**given, "rope_scaling": scaling})
    refuse(_contradictions(architecture) + common_problems(architecture, given))
    return architecture


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """All that the file says about rope, in one flat mapping.

    transformers 5 writes a section `rope_parameters`; 4 wrote `rope_theta` at the top and a section `rope_scaling`,
    null for plain rope, whose type it once called `type`.
    """
    found: dict[str, Any] = {}
    for name in ("rope_parameters", "rope_scaling"):
        section = config.get(name) or {}
        if not isinstance(section, Mapping):
            refuse([f"{name} is {section!r}; it must be a section with fields"])
        found.update(section)
    found["rope_type"] = found.get("rope_type", found.get("type", "default"))
    return {"rope_theta": config.get("rope_theta"), **found}


def _derived(config: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(config)
    heads, width = given.get("num_attention_heads"), given.get("hidden_size")
    if given.get("num_key_value_heads") is None:
        given["num_key_value_heads"] = heads
    countable = type(heads) is int and type(width) is int and heads > 0
    if given.get("head_dim") is None and countable and width % heads == 0:
        given["head_dim"] = width // heads
    return given


_SCALING_SOURCES = {
    name: f"rope_scaling.{name}"
    for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
}


def _unsupported(given: Mapping[str, Any]) -> list[str]:
    found = []
    if given["rope_type"] not in ROPE_TYPES:
        found.append(f"rope_scaling.rope_type is {given['rope_type']!r}; supported: {', '.join(ROPE_TYPES)}")
    if given.get("partial_rotary_factor") not in (None, 1.0):
        found.append(f"partial_rotary_factor is {given['partial_rotary_factor']!r}; supported: 1")
    found += [f"{name} is set; supported: false" for name in ("mlp_bias", "rope_interleaved") if given.get(name)]
    return found


def _contradictions(a: Llama) -> list[str]:
    found = []
    if a.head_dim % 2:
        found.append(f"head_dim is {a.head_dim}; it must be even, since rope turns pairs")
    if a.rope_scaling and a.rope_scaling.high_freq_factor <= a.rope_scaling.low_freq_factor:
        found.append("rope_scaling.high_freq_factor must be above rope_scaling.low_freq_factor")
    return found
