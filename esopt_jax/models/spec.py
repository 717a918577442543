"""Rows of the one table of a model's weights: init, load, save, sharding and noise all read it.

Fused tensors of the file are split along heads, so that one mesh axis shards heads everywhere and a seed means the same
perturbation under any mesh. Every projection is stored `[inputs..., outputs...]`. Shapes use D = `hidden_size`,
V = `vocab_size`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from esopt_jax.models.architecture import Architecture
from esopt_jax.types import LeafSpec, Specs


def decoder_specs(a: Architecture, mixer: Callable[[int], Iterator[LeafSpec]], *, gains: str) -> Specs:
    """All leaves of a decoder, in the order of the forward pass; paths are unique.

    Args:
        a: shapes.
        mixer: leaves of the mixer of layer i.
        gains: how norm gains start: `"ones"`, or `"zeros"` where the norm multiplies by 1 + gain.
    """

    def rows() -> Iterator[LeafSpec]:
        table = ((a.vocab_size, a.hidden_size), ("vocab", None), 1)
        yield leaf("embed_tokens.weight", *table, group="embedding")
        for index in range(a.num_hidden_layers):
            layer = f"layers.{index}."
            yield norm(layer + "input_layernorm.weight", a.hidden_size, gains)
            yield from mixer(index)
            yield norm(layer + "post_attention_layernorm.weight", a.hidden_size, gains)
            yield from _mlp(layer + "mlp.", a)
        yield norm("norm.weight", a.hidden_size, gains)
        if not a.tie_word_embeddings:
            yield leaf("lm_head.weight", *table, group="embedding", hf_name="lm_head.weight")

    return tuple(rows())


def keys_and_values(prefix: str, a: Architecture) -> Iterator[LeafSpec]:
    """`k_proj` and `v_proj` of an attention layer, `[D, Hkv, Dh]`."""
    for name in ("k_proj.weight", "v_proj.weight"):
        shape = (a.hidden_size, a.num_key_value_heads, a.head_dim)
        yield leaf(prefix + name, shape, (None, "kv_heads", None), 1)


def heads_to_stream(prefix: str, a: Architecture) -> LeafSpec:
    """`o_proj` of an attention layer, `[Hkv, G, Dh, D]`."""
    shape = (a.num_key_value_heads, a.query_groups, a.head_dim, a.hidden_size)
    return leaf(prefix + "o_proj.weight", shape, ("kv_heads", None, None, None), 3)


def norm(path: str, size: int, gains: str) -> LeafSpec:
    """The gain of a norm; one near 1 is kept in float32, since a bfloat16 there moves in steps of 2^-8."""
    return leaf(path, (size,), (None,), 0, init=gains, group="norm", keep_float32=gains == "ones")


def leaf(
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
    """One row; the file calls the tensor `model.` + `name` unless `hf_name` says otherwise."""
    path = name if part is None else f"{name}#{part}"
    return LeafSpec(path, shape, axes, inputs, init, hf_name or f"model.{name}", part, group, keep_float32)


def _mlp(prefix: str, a: Architecture) -> Iterator[LeafSpec]:
    width, hidden = a.hidden_size, a.intermediate_size
    yield leaf(prefix + "gate_proj.weight", (width, hidden), (None, "mlp"), 1)
    yield leaf(prefix + "up_proj.weight", (width, hidden), (None, "mlp"), 1)
    yield leaf(prefix + "down_proj.weight", (hidden, width), ("mlp", None), 1)
