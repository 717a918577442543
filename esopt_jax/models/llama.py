"""The Llama decoder as pure functions of (view, cache, tokens), for one member, and its table of leaves.

What the functions take and give is written in `registry`, which is how the rest of the package calls them. Layers are
unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from esopt_jax.models.attention import attend_segment, attend_token, per_head, rotate, rotation
from esopt_jax.models.cache import AttentionCache, Cache, attention_cache, empty_cache
from esopt_jax.models.decoder import SEGMENT, embedding, layers, logits, mlp, read_prompt
from esopt_jax.models.llama_config import Llama
from esopt_jax.models.ops import dense, plain_rms_norm
from esopt_jax.models.spec import decoder_specs, heads_to_stream, keys_and_values, leaf
from esopt_jax.types import LeafSpec, Specs, View

Mix = Callable[[View, jax.Array, AttentionCache], tuple[jax.Array, AttentionCache]]

# --- leaves, memory, rope ---------------------------------------------------------------------------------------------


def leaf_specs(arch: Llama) -> Specs:
    """All leaves, in the order of the forward pass."""
    return decoder_specs(arch, lambda index: _attention(f"layers.{index}.self_attn.", arch), gains="ones")


def _attention(prefix: str, a: Llama) -> Iterator[LeafSpec]:
    queries = (a.hidden_size, a.num_key_value_heads, a.query_groups, a.head_dim)
    yield leaf(prefix + "q_proj.weight", queries, (None, "kv_heads", None, None), 1)
    yield from keys_and_values(prefix, a)
    yield heads_to_stream(prefix, a)


def init_cache(arch: Llama, rows: int, capacity: int, dtype: jnp.dtype = jnp.float32) -> Cache:
    """Memory of `rows` sequences of at most `capacity` tokens, none of them read yet."""
    return empty_cache(rows, (attention_cache(arch, rows, capacity, dtype) for _ in range(arch.num_hidden_layers)))


def frequencies(arch: Llama) -> np.ndarray:
    """Rotary frequencies, `[Dh / 2]` float32: pair j has `theta^(-2j / Dh)`, stretched where the model says so."""
    plain = arch.rope_theta ** -(np.arange(0, arch.head_dim, 2) / arch.head_dim)
    scaling = arch.rope_scaling
    if scaling is None:
        return plain.astype(np.float32)
    waves = scaling.original_max_position_embeddings * plain / (2 * np.pi)  # that fit into the original length
    kept = (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = np.clip(kept, 0.0, 1.0)
    return (plain * (kept + (1.0 - kept) / scaling.factor)).astype(np.float32)


# --- forward pass -----------------------------------------------------------------------------------------------------


def prefill(
    view: View, cache: Cache, tokens: jax.Array, lengths: jax.Array, *, arch: Llama, segment: int = SEGMENT
) -> tuple[jax.Array, Cache]:
    """Read a right-padded segment of every row; logits after each row's last token."""
    last, cache = read_prompt(partial(_read, arch=arch), view, cache, tokens, lengths, segment=segment)
    return _logits(view, last, arch), cache


def decode_step(
    view: View, cache: Cache, tokens: jax.Array, live: jax.Array, *, arch: Llama
) -> tuple[jax.Array, Cache]:
    """Read one token per row."""
    turn = per_head(rotation(cache.length, frequencies(arch)))

    def mix(w: View, x: jax.Array, memory: AttentionCache) -> tuple[jax.Array, AttentionCache]:
        q, k, v = _project(w, x)
        q, k = rotate(q, per_head(turn)), rotate(k, turn)
        return attend_token(q, k, v, memory, cache.length, live)

    x, memories = _through(view, cache, embedding(view, tokens), mix, arch)
    return _logits(view, x, arch), Cache(length=cache.length + live, layers=memories)


def score(view: View, tokens: jax.Array, lengths: jax.Array, *, arch: Llama, remat: bool = False) -> jax.Array:
    """Logits at every position of right-padded `tokens`."""
    cache = init_cache(arch, *tokens.shape, dtype=embedding(view, tokens[:, 0]).dtype)
    hidden, _ = _read(view, cache, tokens, lengths, arch=arch, remat=remat)
    return _logits(view, hidden, arch)


def _read(
    view: View, cache: Cache, tokens: jax.Array, lengths: jax.Array, *, arch: Llama, remat: bool = False
) -> tuple[jax.Array, Cache]:
    """Hidden states `[B, T, D]` of a segment, before the final norm."""
    turn = per_head(rotation(cache.length[:, None] + jnp.arange(tokens.shape[1]), frequencies(arch)))

    def mix(w: View, x: jax.Array, memory: AttentionCache) -> tuple[jax.Array, AttentionCache]:
        q, k, v = (jnp.moveaxis(t, 1, -2) for t in _project(w, x))
        q, k = rotate(q, per_head(turn)), rotate(k, turn)
        mixed, memory = attend_segment(q, k, v, memory, cache.length, lengths)
        return jnp.moveaxis(mixed, -2, 1), memory

    x, memories = _through(view, cache, embedding(view, tokens), mix, arch, remat)
    return x, Cache(length=cache.length + lengths, layers=memories)


def _through(
    view: View, cache: Cache, x: jax.Array, mix: Mix, arch: Llama, remat: bool = False
) -> tuple[jax.Array, tuple[AttentionCache, ...]]:
    """`x: [..., D]` through all layers, whose heads are mixed by `mix`."""

    def layer(w: View, x: jax.Array, memory: AttentionCache) -> tuple[jax.Array, AttentionCache]:
        normed = plain_rms_norm(x, w["input_layernorm.weight"], eps=arch.rms_norm_eps)
        mixed, memory = mix(w, normed, memory)
        x = x + dense(mixed, w["self_attn.o_proj.weight"], inputs=3)
        return x + mlp(w, plain_rms_norm(x, w["post_attention_layernorm.weight"], eps=arch.rms_norm_eps)), memory

    memories = []
    for w, memory in layers(view, cache):
        x, memory = (jax.checkpoint(layer) if remat else layer)(w, x, memory)
        memories.append(memory)
    return x, tuple(memories)


def _project(w: View, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries `[..., Hkv, G, Dh]`, keys and values `[..., Hkv, Dh]`."""
    q, k, v = (dense(x, w[f"self_attn.{name}_proj.weight"]) for name in "qkv")
    return q, k, v


def _logits(view: View, x: jax.Array, arch: Llama) -> jax.Array:
    return logits(view, plain_rms_norm(x, view["norm.weight"], eps=arch.rms_norm_eps), arch)
