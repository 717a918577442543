"""What all decoder families have in common, and how the fields of a `config.json` are checked.

Every number comes from the file. A default would be some other model's number: the class defaults in `transformers` are
those of one size, so a missing field is an error here and never a guess.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from esopt_jax.errors import EsoptError

A = TypeVar("A")


@dataclass(frozen=True)
class Architecture:
    """Shapes and constants of a decoder, under the names that `config.json` gives them; a family adds its own.

    Attributes:
        head_dim: width of a query, key or value head.
        rope_theta: base of the rotary frequencies.
        tie_word_embeddings: whether the embedding table is the head as well.
        initializer_range: standard deviation of freshly drawn matrices.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    initializer_range: float

    @property
    def query_groups(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_attention_heads // self.num_key_value_heads


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


def refuse(problems: Sequence[str]) -> None:
    """Raise one `EsoptError` that names all `problems` of a config; none is fine."""
    if problems:
        raise EsoptError("config.json: " + "; ".join(problems))


def field_problems(kind: type, given: Mapping[str, Any], sources: Mapping[str, str]) -> list[str]:
    """What is wrong with the fields of `given` that the dataclass `kind` needs, one by one.

    Args:
        kind: fields of type int and float must be positive numbers, those of type bool true or false; what is in others
            is the family's to check, and those that may be None may be absent.
        given: as parsed.
        sources: field -> its place in the file, where it has another name.
    """
    hints = get_type_hints(kind)
    found = (_problem(sources.get(f.name, f.name), given.get(f.name), hints[f.name]) for f in fields(kind))
    return [problem for problem in found if problem]


def taken(kind: type[A], given: Mapping[str, Any]) -> A:
    """The dataclass `kind` from the fields of `given`, which have no problems."""
    return kind(**{f.name: given[f.name] for f in fields(kind)})


def common_problems(a: Architecture, given: Mapping[str, Any]) -> list[str]:
    """Contradictions and unsupported choices that any family can have."""
    found = []
    if a.num_attention_heads % a.num_key_value_heads:
        found.append("num_attention_heads must be a multiple of num_key_value_heads")
    if given.get("hidden_act") != "silu":
        found.append(f"hidden_act is {given.get('hidden_act')!r}; supported: silu")
    if given.get("attention_bias"):
        found.append("attention_bias is set; supported: false")
    return found


def _problem(source: str, value: Any, kind: Any) -> str | None:
    if type(None) in get_args(kind):
        return None
    if value is None:
        return f"{source} is missing"
    if kind is bool:
        return None if isinstance(value, bool) else f"{source} is {value!r}; it must be true or false"
    if kind in (int, float):
        whole = isinstance(value, int) and not isinstance(value, bool)
        ok = whole or (kind is float and isinstance(value, float) and math.isfinite(value))
        return None if ok and value > 0 else f"{source} is {value!r}; it must be a positive number"
    return None
