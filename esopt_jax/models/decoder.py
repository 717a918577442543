"""The skeleton that decoders share: embedding, prompts read in pieces, MLP, logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax import lax

from esopt_jax.models.architecture import Architecture
from esopt_jax.models.cache import Cache
from esopt_jax.models.ops import dense, embed, silu, unembed
from esopt_jax.types import View

Read = Callable[[View, Cache, jax.Array, jax.Array], tuple[jax.Array, Cache]]
SEGMENT = 256
"""Longest piece of a prompt handled at once; longer prompts are scanned, which bounds the scratch memory."""


def read_prompt(
    read: Read, view: View, cache: Cache, tokens: jax.Array, lengths: jax.Array, *, segment: int
) -> tuple[jax.Array, Cache]:
    """The hidden state after each row's last true token, and the next cache.

    Args:
        read: `(view, cache, tokens, lengths)` of one piece -> its hidden states `[B, T, D]` and the next cache.
        view: leaves of one member.
        cache: memory of B rows.
        tokens: `[B, T]` int32, right-padded.
        lengths: `[B]` int32.
        segment: longest piece, in tokens.
    """
    total = tokens.shape[1]
    if total <= segment:
        hidden, cache = read(view, cache, tokens, lengths)
        return _row_at(hidden, lengths - 1), cache
    count = -(-total // segment)
    tokens = jnp.pad(tokens, ((0, 0), (0, count * segment - total)))
    pieces = tokens.reshape(tokens.shape[0], count, segment).swapaxes(0, 1)

    def body(
        carry: tuple[Cache, jax.Array], piece: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[Cache, jax.Array], None]:
        cache, last = carry
        offset = piece[0] * segment
        inside = jnp.clip(lengths - offset, 0, segment)
        hidden, cache = read(view, cache, piece[1], inside)
        ends_here = (lengths > offset) & (lengths <= offset + segment)
        return (cache, jnp.where(ends_here[:, None], _row_at(hidden, inside - 1), last)), None

    last = jnp.zeros_like(embedding(view, tokens[:, 0]))
    (cache, last), _ = lax.scan(body, (cache, last), (jnp.arange(count), pieces))
    return last, cache


def layer_view(view: View, prefix: str) -> View:
    """The leaves under `prefix`, with the prefix taken off."""
    return {path[len(prefix) :]: leaf for path, leaf in view.items() if path.startswith(prefix)}


def layers(view: View, cache: Cache) -> Iterator[tuple[View, object]]:
    """Leaves and memory of each layer."""
    for index, memory in enumerate(cache.layers):
        yield layer_view(view, f"layers.{index}."), memory


def mlp(w: View, x: jax.Array) -> jax.Array:
    """The gated MLP of a layer, `[..., D]` normed -> `[..., D]`."""
    gated = silu(dense(x, w["mlp.gate_proj.weight"])) * dense(x, w["mlp.up_proj.weight"])
    return dense(gated, w["mlp.down_proj.weight"])


def embedding(view: View, tokens: jax.Array) -> jax.Array:
    """`[..., D]` of `tokens: [...]`."""
    return embed(tokens, view["embed_tokens.weight"])


def logits(view: View, x: jax.Array, arch: Architecture) -> jax.Array:
    """Logits `[..., V]` float32 of `x: [..., D]`, which has been through the final norm."""
    table = view["embed_tokens.weight" if arch.tie_word_embeddings else "lm_head.weight"]
    return unembed(x, table).astype(jnp.float32)


def _row_at(hidden: jax.Array, index: jax.Array) -> jax.Array:
    """`hidden[b, index[b]]`, `[B, D]`; an index of -1 gives some row."""
    return jnp.take_along_axis(hidden, jnp.maximum(index, 0)[:, None, None], axis=1)[:, 0]
