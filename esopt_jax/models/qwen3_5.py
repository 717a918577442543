"""The Qwen3.5 text decoder as pure functions of (view, cache, tokens), for one member.

`prefill` reads right-padded segments of any length, `decode_step` one token per row, `score` whole sequences at once.
All three are differentiable and meant to be vmapped over members. Layers are unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax

from esopt_jax.models import attention, delta_net
from esopt_jax.models.architecture import FULL, Architecture
from esopt_jax.models.cache import Cache, init_cache
from esopt_jax.models.ops import dense, embed, rms_norm, silu, unembed
from esopt_jax.types import View

Progress = tuple[Cache, jax.Array]
SEGMENT = 256
"""Longest piece of a prompt handled at once; longer prompts are scanned, which bounds the scratch memory."""


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
    total = tokens.shape[1]
    if total <= segment:
        hidden, cache = _read(view, cache, tokens, lengths, arch)
        return _logits(view, _row_at(hidden, lengths - 1), arch), cache
    count = -(-total // segment)
    tokens = jnp.pad(tokens, ((0, 0), (0, count * segment - total)))
    pieces = tokens.reshape(tokens.shape[0], count, segment).swapaxes(0, 1)

    def body(carry: Progress, piece: tuple[jax.Array, jax.Array]) -> tuple[Progress, None]:
        cache, last = carry
        offset = piece[0] * segment
        inside = jnp.clip(lengths - offset, 0, segment)
        hidden, cache = _read(view, cache, piece[1], inside, arch)
        ends_here = (lengths > offset) & (lengths <= offset + segment)
        return (cache, jnp.where(ends_here[:, None], _row_at(hidden, inside - 1), last)), None

    last = jnp.zeros_like(_embedding(view, tokens[:, 0]))
    (cache, last), _ = lax.scan(body, (cache, last), (jnp.arange(count), pieces))
    return _logits(view, last, arch), cache


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
    x = _embedding(view, tokens)
    turn = attention.rotation(cache.length, arch=arch)
    layers = []
    for w, kind, memory in _layers(view, arch, cache):
        normed = rms_norm(x, w["input_layernorm.weight"], eps=arch.rms_norm_eps)
        if kind == FULL:
            mixed, memory = attention.step(
                layer_view(w, "self_attn."), normed, memory, turn, cache.length, live, arch=arch
            )
        else:
            mixed, memory = delta_net.step(layer_view(w, "linear_attn."), normed, memory, live, arch=arch)
        x = _mlp(w, x + mixed, arch)
        layers.append(memory)
    return _logits(view, x, arch), Cache(length=cache.length + live, layers=tuple(layers))


def score(view: View, tokens: jax.Array, lengths: jax.Array, *, arch: Architecture) -> jax.Array:
    """Logits `[B, T, V]` float32 at every position of right-padded `tokens: [B, T]`; garbage beyond `lengths: [B]`."""
    cache = init_cache(arch, *tokens.shape, dtype=_embedding(view, tokens[:, 0]).dtype)
    hidden, _ = _read(view, cache, tokens, lengths, arch)
    return _logits(view, hidden, arch)


def layer_view(view: View, prefix: str) -> View:
    """The leaves under `prefix`, with the prefix taken off."""
    return {path[len(prefix) :]: leaf for path, leaf in view.items() if path.startswith(prefix)}


def _read(
    view: View, cache: Cache, tokens: jax.Array, lengths: jax.Array, arch: Architecture
) -> tuple[jax.Array, Cache]:
    """Hidden states `[B, T, D]` of a segment, before the final norm."""
    x = _embedding(view, tokens)
    turn = attention.rotation(cache.length[:, None] + jnp.arange(tokens.shape[1]), arch=arch)
    layers = []
    for w, kind, memory in _layers(view, arch, cache):
        normed = rms_norm(x, w["input_layernorm.weight"], eps=arch.rms_norm_eps)
        if kind == FULL:
            mixed, memory = attention.segment(
                layer_view(w, "self_attn."), normed, memory, turn, cache.length, lengths, arch=arch
            )
        else:
            mixed, memory = delta_net.segment(layer_view(w, "linear_attn."), normed, memory, lengths, arch=arch)
        x = _mlp(w, x + mixed, arch)
        layers.append(memory)
    return x, Cache(length=cache.length + lengths, layers=tuple(layers))


def _layers(view: View, arch: Architecture, cache: Cache) -> Iterator[tuple[View, str, object]]:
    for index, (kind, memory) in enumerate(zip(arch.layer_types, cache.layers, strict=True)):
        yield layer_view(view, f"layers.{index}."), kind, memory


def _mlp(w: View, x: jax.Array, arch: Architecture) -> jax.Array:
    h = rms_norm(x, w["post_attention_layernorm.weight"], eps=arch.rms_norm_eps)
    gated = silu(dense(h, w["mlp.gate_proj.weight"])) * dense(h, w["mlp.up_proj.weight"])
    return x + dense(gated, w["mlp.down_proj.weight"])


def _embedding(view: View, tokens: jax.Array) -> jax.Array:
    return embed(tokens, view["embed_tokens.weight"])


def _logits(view: View, x: jax.Array, arch: Architecture) -> jax.Array:
    table = view["embed_tokens.weight" if arch.tie_word_embeddings else "lm_head.weight"]
    return unembed(rms_norm(x, view["norm.weight"], eps=arch.rms_norm_eps), table).astype(jnp.float32)


def _row_at(hidden: jax.Array, index: jax.Array) -> jax.Array:
    """`hidden[b, index[b]]`, `[B, D]`; an index of -1 gives some row."""
    return jnp.take_along_axis(hidden, jnp.maximum(index, 0)[:, None, None], axis=1)[:, 0]
