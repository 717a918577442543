"""The largest intermediate results of a run's programs, computed from shapes: an estimate, and labelled as one.

A program compiled for a CPU says nothing about it: there bfloat16 products are done in float32, with a float32 copy of
every weight. What is counted here is what any backend has to hold: the widest layer of a prompt's piece, the logits
with what the sampler makes of them, and the blocks of the noise. Of float32 programs, where the CPU's own number means
something, this is 1.2 to 2.2 times that number.
"""

from __future__ import annotations

from jax.sharding import AbstractMesh

from esopt_jax.core.scope import tuned_specs
from esopt_jax.models.decoder import SEGMENT
from esopt_jax.models.delta_net import chunk_for
from esopt_jax.models.qwen3_5_config import LINEAR, Qwen35
from esopt_jax.models.sharding import partition
from esopt_jax.training.plan_sizing import Sizing

NOISE_BLOCKS = 1 << 28
"""Bound on the blocks in which weights are perturbed and updated (`core.layout`), in bytes."""

BYTES_DRAWN = 64
"""Of a value while it is drawn and added: words, counters, normals, old and new weight."""

LOGITS_COPIES = 4
"""Float32 arrays of logits at a time: as computed, penalised, with noise, and sorted or filtered."""


def scratch_bytes(sizing: Sizing, shape: tuple[int, int]) -> int:
    """Bytes on one device, where a group plays rows of `shape` (members, rows a member)."""
    rows = shape[0] * shape[1]
    return max(_reading(sizing, rows), _noise(sizing, shape[0]))


def _reading(sizing: Sizing, rows: int) -> int:
    """A piece of the longest prompt on its way through the widest layer, or the logits behind it."""
    arch, width = sizing.arch, sizing.dtype.itemsize
    tokens = rows * min(SEGMENT, sizing.prompt_width)
    stream = tokens * arch.hidden_size * (2 * width + 4)
    mlp = tokens * _cut(arch.intermediate_size, "mlp", sizing.mesh) * (2 * width + 4)
    layers = [mlp, _attention(sizing, rows), _logits(sizing, rows)]
    if isinstance(arch, Qwen35) and LINEAR in arch.layer_types:
        layers.append(_delta_net(arch, sizing, rows))
    return stream + max(layers)


def _attention(sizing: Sizing, rows: int) -> int:
    arch, width = sizing.arch, sizing.dtype.itemsize
    piece, capacity = min(SEGMENT, sizing.prompt_width), sizing.decode.capacity
    kv_heads = _cut(arch.num_key_value_heads, "kv_heads", sizing.mesh)
    heads = kv_heads * arch.query_groups
    scores = rows * heads * piece * capacity * (4 + 4 + width)  # scores, exponentials, weights
    queries = rows * heads * piece * arch.head_dim * 4 * width  # with gates, and turned
    return scores + queries + 4 * rows * kv_heads * capacity * arch.head_dim * width


def _delta_net(arch: Qwen35, sizing: Sizing, rows: int) -> int:
    piece = min(SEGMENT, sizing.prompt_width)
    chunk = chunk_for(piece, arch.linear_key_head_dim)
    keys = _cut(arch.linear_num_key_heads, "key_heads", sizing.mesh)
    values = _cut(arch.linear_num_value_heads, "value_heads", sizing.mesh)
    mixed = 2 * keys * arch.linear_key_head_dim + values * arch.linear_value_head_dim
    per_token = mixed * (2 * sizing.dtype.itemsize + 4) + 3 * values * arch.linear_value_head_dim * 4
    within = values * 6 * chunk * chunk * 4  # decays, overlaps and their inverse, of one chunk
    return rows * (piece * per_token + within)


def _logits(sizing: Sizing, rows: int) -> int:
    vocabulary = sizing.arch.vocab_size
    counts = 5 * vocabulary if sizing.flags.penalties else 0  # the next beside the old
    return rows * (_cut(vocabulary, "vocab", sizing.mesh) * 4 * LOGITS_COPIES + counts)


def _noise(sizing: Sizing, members: int) -> int:
    """Blocks of the draw, and the members of one large leaf before they have their type."""
    es, largest, elements = sizing.config.es, 0, 0
    for spec in tuned_specs(sizing.specs, es.scope):
        elements += sizing.local_size(spec)
        if es.plan == "low_rank" and spec.is_matrix:
            largest = max(largest, 2 * es.rank * sum(spec.noise_form) * 4)
        else:
            largest = max(largest, sizing.local_size(spec) * sizing.dtype.itemsize)
    return min(NOISE_BLOCKS, BYTES_DRAWN * elements) + members * largest


def _cut(size: int, axis: str, mesh: AbstractMesh) -> int:
    """How much of an axis of this name a device has."""
    (name,) = partition((size,), (axis,), mesh)
    return size if name is None else -(-size // mesh.shape[name])
