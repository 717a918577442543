"""The one table of a model's weights: init, load, save, sharding and noise all read it.

Fused tensors of the file are split along heads here, so that one mesh axis shards heads everywhere and a seed means the
same perturbation under any mesh. Every projection is stored `[inputs..., outputs...]`.
"""

from __future__ import annotations

from collections.abc import Iterator

from esopt_jax.models.architecture import FULL, Architecture
from esopt_jax.types import LeafSpec, Specs


def leaf_specs(arch: Architecture) -> Specs:
    """All leaves of a Qwen3.5 text decoder, in the order of the forward pass.

    Returns:
        One `LeafSpec` per leaf; paths are unique. Shapes use D = `hidden_size`, V = `vocab_size`.
    """
    return tuple(_model(arch))


def _model(a: Architecture) -> Iterator[LeafSpec]:
    table = ((a.vocab_size, a.hidden_size), ("vocab", None), 1)
    yield _leaf("embed_tokens.weight", *table, group="embedding")
    for index, kind in enumerate(a.layer_types):
        layer = f"layers.{index}."
        yield _norm(layer + "input_layernorm.weight", a.hidden_size)
        yield from _attention(layer + "self_attn.", a) if kind == FULL else _delta_net(layer + "linear_attn.", a)
        yield _norm(layer + "post_attention_layernorm.weight", a.hidden_size)
        yield from _mlp(layer + "mlp.", a)
    yield _norm("norm.weight", a.hidden_size)
    if not a.tie_word_embeddings:
        yield _leaf("lm_head.weight", *table, group="embedding", hf_name="lm_head.weight")


def _attention(prefix: str, a: Architecture) -> Iterator[LeafSpec]:
    width, kv_heads, groups, head = a.hidden_size, a.num_key_value_heads, a.query_groups, a.head_dim
    # Per query head the file stores the query and then its output gate: the axis of size 2 keeps them apart.
    queries = ((width, kv_heads, groups, 2, head), (None, "kv_heads", None, None, None), 1)
    keys = ((width, kv_heads, head), (None, "kv_heads", None), 1)
    yield _leaf(prefix + "q_proj.weight", *queries)
    yield _leaf(prefix + "k_proj.weight", *keys)
    yield _leaf(prefix + "v_proj.weight", *keys)
    yield _norm(prefix + "q_norm.weight", head)
    yield _norm(prefix + "k_norm.weight", head)
    yield _leaf(prefix + "o_proj.weight", (kv_heads, groups, head, width), ("kv_heads", None, None, None), 3)


def _delta_net(prefix: str, a: Architecture) -> Iterator[LeafSpec]:
    width, taps = a.hidden_size, a.linear_conv_kernel_dim
    keys, values = a.linear_num_key_heads, a.linear_num_value_heads
    key_head, value_head = (keys, a.linear_key_head_dim), (values, a.linear_value_head_dim)
    parts = (("q", key_head, "key_heads"), ("k", key_head, "key_heads"), ("v", value_head, "value_heads"))
    for part, heads, axis in parts:
        yield _leaf(prefix + "in_proj_qkv.weight", (width, *heads), (None, axis, None), 1, part=part)
    yield _leaf(prefix + "in_proj_z.weight", (width, *value_head), (None, "value_heads", None), 1)
    yield _leaf(prefix + "in_proj_b.weight", (width, values), (None, "value_heads"), 1)
    yield _leaf(prefix + "in_proj_a.weight", (width, values), (None, "value_heads"), 1)
    for part, heads, axis in parts:
        yield _leaf(prefix + "conv1d.weight", (taps, *heads), (None, axis, None), 0, part=part, group="conv")
    gates = ((values,), ("value_heads",), 0)
    yield _leaf(prefix + "A_log", *gates, init="decay", group="gate", keep_float32=True)
    yield _leaf(prefix + "dt_bias", *gates, init="ones", group="gate")
    yield _leaf(prefix + "norm.weight", (value_head[1],), (None,), 0, init="ones", group="norm", keep_float32=True)
    yield _leaf(prefix + "out_proj.weight", (*value_head, width), ("value_heads", None, None), 2)


def _mlp(prefix: str, a: Architecture) -> Iterator[LeafSpec]:
    width, hidden = a.hidden_size, a.intermediate_size
    yield _leaf(prefix + "gate_proj.weight", (width, hidden), (None, "mlp"), 1)
    yield _leaf(prefix + "up_proj.weight", (width, hidden), (None, "mlp"), 1)
    yield _leaf(prefix + "down_proj.weight", (hidden, width), ("mlp", None), 1)


def _norm(path: str, size: int) -> LeafSpec:
    # These gains are zero-centred in the file: the norm multiplies by 1 + w.
    return _leaf(path, (size,), (None,), 0, init="zeros", group="norm")


def _leaf(
    name: str,
    shape: tuple[int, ...],
    axes: tuple[str | None, ...],
    inputs: int,
    *,
    init: str = "normal",
    part: str | None = None,
    group: str = "matrix",
    hf_name: str | None = None,
    keep_float32: bool = False,
) -> LeafSpec:
    path = name if part is None else f"{name}#{part}"
    return LeafSpec(path, shape, axes, inputs, init, hf_name or f"model.{name}", part, group, keep_float32)
