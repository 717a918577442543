"""The Qwen3.5 text decoder as pure functions of (view, cache, tokens), for one member, and its table of leaves.

What the functions take and give is written in `registry`, which is how the rest of the package calls them. Layers are
unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from esopt_jax.models import delta_net, gated_attention
from esopt_jax.models.attention import rotation
from esopt_jax.models.cache import Cache, attention_cache, delta_net_cache, empty_cache
from esopt_jax.models.decoder import SEGMENT, embedding, layer_view, layers, logits, mlp, read_prompt
from esopt_jax.models.gated_attention import frequencies
from esopt_jax.models.ops import rms_norm
from esopt_jax.models.qwen3_5_config import FULL, Qwen35
from esopt_jax.models.spec import decoder_specs, heads_to_stream, keys_and_values, leaf, norm
from esopt_jax.types import LeafSpec, Specs, View

GAINS = "zeros"
"""Norm gains are zero-centred in the file: the norm multiplies by 1 + gain."""


# --- leaves and memory ------------------------------------------------------------------------------------------------


def leaf_specs(arch: Qwen35) -> Specs:
    """All leaves, in the order of the forward pass."""

    def mixer(index: int) -> Iterator[LeafSpec]:
        if arch.layer_types[index] == FULL:
            return _attention(f"layers.{index}.self_attn.", arch)
        return _delta_net(f"layers.{index}.linear_attn.", arch)

    return decoder_specs(arch, mixer, gains=GAINS)


def _attention(prefix: str, a: Qwen35) -> Iterator[LeafSpec]:
    # Per query head the file stores the query and then its output gate: the axis of size 2 keeps them apart.
    queries = (a.hidden_size, a.num_key_value_heads, a.query_groups, 2, a.head_dim)
    yield leaf(prefix + "q_proj.weight", queries, (None, "kv_heads", None, None, None), 1)
    yield from keys_and_values(prefix, a)
    yield norm(prefix + "q_norm.weight", a.head_dim, GAINS)
    yield norm(prefix + "k_norm.weight", a.head_dim, GAINS)
    yield heads_to_stream(prefix, a)


def _delta_net(prefix: str, a: Qwen35) -> Iterator[LeafSpec]:
    width, taps = a.hidden_size, a.linear_conv_kernel_dim
    keys, values = a.linear_num_key_heads, a.linear_num_value_heads
    key_head, value_head = (keys, a.linear_key_head_dim), (values, a.linear_value_head_dim)
    parts = (("q", key_head, "key_heads"), ("k", key_head, "key_heads"), ("v", value_head, "value_heads"))
    for part, heads, axis in parts:
        yield leaf(prefix + "in_proj_qkv.weight", (width, *heads), (None, axis, None), 1, part=part)
    yield leaf(prefix + "in_proj_z.weight", (width, *value_head), (None, "value_heads", None), 1)
    yield leaf(prefix + "in_proj_b.weight", (width, values), (None, "value_heads"), 1)
    yield leaf(prefix + "in_proj_a.weight", (width, values), (None, "value_heads"), 1)
    for part, heads, axis in parts:
        yield leaf(prefix + "conv1d.weight", (taps, *heads), (None, axis, None), 0, part=part, group="conv")
    gates = ((values,), ("value_heads",), 0)
    yield leaf(prefix + "A_log", *gates, init="decay", group="gate", keep_float32=True)
    yield leaf(prefix + "dt_bias", *gates, init="ones", group="gate")
    yield leaf(prefix + "norm.weight", (value_head[1],), (None,), 0, init="ones", group="norm", keep_float32=True)
    yield leaf(prefix + "out_proj.weight", (*value_head, width), ("value_heads", None, None), 2)


def init_cache(arch: Qwen35, rows: int, capacity: int, dtype: jnp.dtype = jnp.float32) -> Cache:
    """Memory of `rows` sequences of at most `capacity` tokens, none of them read yet."""
    memories = (
        attention_cache(arch, rows, capacity, dtype) if kind == FULL else delta_net_cache(arch, rows, dtype)
        for kind in arch.layer_types
    )
    return empty_cache(rows, memories)


# --- forward pass -----------------------------------------------------------------------------------------------------


def prefill(
    view: View, cache: Cache, tokens: jax.Array, lengths: jax.Array, *, arch: Qwen35, segment: int = SEGMENT
) -> tuple[jax.Array, Cache]:
    """Read a right-padded segment of every row; logits after each row's last token."""
    last, cache = read_prompt(partial(_read, arch=arch), view, cache, tokens, lengths, segment=segment)
    return _logits(view, last, arch), cache


def decode_step(
    view: View, cache: Cache, tokens: jax.Array, live: jax.Array, *, arch: Qwen35
) -> tuple[jax.Array, Cache]:
    """Read one token per row."""
    x = embedding(view, tokens)
    turn = rotation(cache.length, frequencies(arch))
    memories = []
    for (w, memory), kind in zip(layers(view, cache), arch.layer_types, strict=True):
        normed = rms_norm(x, w["input_layernorm.weight"], eps=arch.rms_norm_eps)
        if kind == FULL:
            mixed, memory = gated_attention.step(
                layer_view(w, "self_attn."), normed, memory, turn, cache.length, live, arch=arch
            )
        else:
            mixed, memory = delta_net.step(layer_view(w, "linear_attn."), normed, memory, live, arch=arch)
        x = _with_mlp(w, x + mixed, arch)
        memories.append(memory)
    return _logits(view, x, arch), Cache(length=cache.length + live, layers=tuple(memories))


def score(view: View, tokens: jax.Array, lengths: jax.Array, *, arch: Qwen35, remat: bool = False) -> jax.Array:
    """Logits at every position of right-padded `tokens`."""
    cache = init_cache(arch, *tokens.shape, dtype=embedding(view, tokens[:, 0]).dtype)
    hidden, _ = _read(view, cache, tokens, lengths, arch=arch, remat=remat)
    return _logits(view, hidden, arch)


def _read(
    view: View, cache: Cache, tokens: jax.Array, lengths: jax.Array, *, arch: Qwen35, remat: bool = False
) -> tuple[jax.Array, Cache]:
    """Hidden states `[B, T, D]` of a segment, before the final norm."""
    x = embedding(view, tokens)
    turn = rotation(cache.length[:, None] + jnp.arange(tokens.shape[1]), frequencies(arch))

    def layer(kind: str, w: View, x: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
        normed = rms_norm(x, w["input_layernorm.weight"], eps=arch.rms_norm_eps)
        if kind == FULL:
            mixed, memory = gated_attention.segment(
                layer_view(w, "self_attn."), normed, memory, turn, cache.length, lengths, arch=arch
            )
        else:
            mixed, memory = delta_net.segment(layer_view(w, "linear_attn."), normed, memory, lengths, arch=arch)
        return _with_mlp(w, x + mixed, arch), memory

    memories = []
    for (w, memory), kind in zip(layers(view, cache), arch.layer_types, strict=True):
        run = partial(layer, kind)
        x, memory = (jax.checkpoint(run) if remat else run)(w, x, memory)
        memories.append(memory)
    return x, Cache(length=cache.length + lengths, layers=tuple(memories))


def _with_mlp(w: View, x: jax.Array, arch: Qwen35) -> jax.Array:
    return x + mlp(w, rms_norm(x, w["post_attention_layernorm.weight"], eps=arch.rms_norm_eps))


def _logits(view: View, x: jax.Array, arch: Qwen35) -> jax.Array:
    return logits(view, rms_norm(x, view["norm.weight"], eps=arch.rms_norm_eps), arch)
