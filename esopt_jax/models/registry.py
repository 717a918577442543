"""Families of models behind one set of functions: what the rest of the package calls, whatever the model.

A family is a module with the table of leaves and the forward pass, and one that reads its `config.json`. To add one,
write the two and add a row to `FAMILIES`. `prefill` reads right-padded segments of any length, `decode_step` one token
per row, `score` whole sequences at once; all three are differentiable and meant to be vmapped over members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.models import llama, llama_config, qwen3_5, qwen3_5_config
from esopt_jax.models.architecture import Architecture
from esopt_jax.models.cache import Cache
from esopt_jax.models.decoder import SEGMENT
from esopt_jax.models.sizes import PUBLISHED
from esopt_jax.types import Specs, View


@dataclass(frozen=True)
class Family:
    """Models of one kind.

    Attributes:
        kind: class of their architectures.
        model_types: what `model_type` may be in their `config.json`.
        parse: the architecture that a text config describes.
        model: module with `leaf_specs`, `init_cache`, `prefill`, `decode_step` and `score`.
    """

    kind: type[Architecture]
    model_types: tuple[str, ...]
    parse: Callable[[Mapping[str, Any]], Architecture]
    model: ModuleType


FAMILIES = (
    Family(qwen3_5_config.Qwen35, qwen3_5_config.MODEL_TYPES, qwen3_5_config.parse, qwen3_5),
    Family(llama_config.Llama, llama_config.MODEL_TYPES, llama_config.parse, llama),
)


# --- architectures ----------------------------------------------------------------------------------------------------


def load_architecture(name: str) -> Architecture:
    """The architecture of a published model by its name, without any file.

    Raises:
        EsoptError: no such name.

    Example:
        >>> arch = load_architecture("llama-3.1-8b")
        >>> sum(spec.size for spec in leaf_specs(arch))
        8030261248
    """
    if name not in PUBLISHED:
        raise EsoptError(
            f"there is no published model {name!r} here; {did_you_mean(name, PUBLISHED)} (known: "
            f"{', '.join(PUBLISHED)})"
        )
    return parse_architecture(PUBLISHED[name])


def parse_architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture that a parsed `config.json` describes; a `text_config` section wins over the top level.

    Raises:
        EsoptError: with every problem of the file in one message.
    """
    text = config.get("text_config") or config
    if not isinstance(text, Mapping):
        raise EsoptError(f"config.json: text_config is {text!r}; it must be a section with fields")
    found = [c["model_type"] for c in (config, text) if c.get("model_type") is not None] or [None]
    for family in FAMILIES:
        if set(found) <= set(family.model_types):
            # Only the tie may live at the top level alone: older multimodal files write it there and nowhere else.
            return family.parse({"tie_word_embeddings": config.get("tie_word_embeddings"), **text})
    supported = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise EsoptError(f"model_type {found[0]!r} is not supported; supported: {supported} (dense text models)")


def _model(arch: Architecture) -> Any:
    return next(family.model for family in FAMILIES if isinstance(arch, family.kind))


# --- models -----------------------------------------------------------------------------------------------------------


def leaf_specs(arch: Architecture) -> Specs:
    """The table of a model's weights, in the order of the forward pass; paths are unique."""
    return _model(arch).leaf_specs(arch)


def init_cache(arch: Architecture, rows: int, capacity: int, dtype: jnp.dtype = jnp.float32) -> Cache:
    """An empty cache for `rows` sequences of at most `capacity` tokens."""
    return _model(arch).init_cache(arch, rows, capacity, dtype)


def prefill(
    view: View, cache: Cache, tokens: jax.Array, lengths: jax.Array, *, arch: Architecture, segment: int = SEGMENT
) -> tuple[jax.Array, Cache]:
    """Read a right-padded segment of every row, continuing from the cache.

    Rows are packed: a row's tokens follow its earlier ones without the padding of other rows, so an episode fed in
    pieces gives what the whole text gives at once.

    Args:
        view: leaves of one member.
        cache: memory of B rows.
        tokens: `[B, T]` int32.
        lengths: `[B]` int32, true tokens in each row; 0 leaves the row's cache as it is.
        arch: static.
        segment: longest piece handled at once, in tokens.

    Returns:
        Logits `[B, V]` float32 after each row's last true token (garbage for length 0), and the next cache.
    """
    return _model(arch).prefill(view, cache, tokens, lengths, arch=arch, segment=segment)


def decode_step(
    view: View, cache: Cache, tokens: jax.Array, live: jax.Array, *, arch: Architecture
) -> tuple[jax.Array, Cache]:
    """Read one token per row.

    Args:
        view: leaves of one member.
        cache: memory of B rows.
        tokens: `[B]` int32.
        live: `[B]` bool; other rows keep cache and length, and their logits are garbage.
        arch: static.

    Returns:
        Logits `[B, V]` float32 and the next cache.
    """
    return _model(arch).decode_step(view, cache, tokens, live, arch=arch)


def score(view: View, tokens: jax.Array, lengths: jax.Array, *, arch: Architecture, remat: bool = False) -> jax.Array:
    """Logits `[B, T, V]` float32 at every position of right-padded `tokens: [B, T]`; garbage beyond `lengths: [B]`.

    With `remat` a gradient keeps the input of each layer and computes the rest of it again: less memory, more work.
    """
    return _model(arch).score(view, tokens, lengths, arch=arch, remat=remat)
