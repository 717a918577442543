"""Replies of many rows on the device: read a segment, then one loop that writes tokens until every row is done.

Rows are laid out `[M, C]`, members by cases. The loop is one `while_loop` with a scalar condition that owns all rows,
and the model step is vmapped over members inside it: a loop per member would select over every cache at every step.
The number of rows is fixed by the shapes, since another number changes the last bits of a matrix product.

The last token of a reply has been sampled but not read: the next segment of a conversation must begin with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from esopt_jax.models.architecture import Architecture
from esopt_jax.models.cache import Cache, reset_rows
from esopt_jax.models.registry import decode_step, init_cache, prefill
from esopt_jax.rollouts.sampler import Counts, Sampling, sample
from esopt_jax.types import View

PAD = -1
"""Fills the reply buffer beyond a reply. No token id, so it cannot be taken for one."""


@dataclass(frozen=True)
class DecodeSpec:
    """What is compiled into a decode: architecture, end ids, vocabulary in use, and lengths in tokens."""

    arch: Architecture
    eos_ids: tuple[int, ...]
    vocab_limit: int
    max_new_tokens: int
    capacity: int


@struct.dataclass
class DecodeState:
    """All rows of a device between calls.

    `cache` has leaves `[M, C, ...]`; `keys: [M, C]` are the rows' sampling keys of this turn.
    `tokens: [M, C, N]` int32 is the reply so far, `PAD` beyond `written: [M, C]`, the per-row cursor; `last: [M, C]`
    its newest token, not yet in the cache; `done: [M, C]`. `counts` is None unless penalties are on.
    """

    cache: Cache
    keys: jax.Array
    tokens: jax.Array
    written: jax.Array
    last: jax.Array
    done: jax.Array
    counts: Counts | None


@struct.dataclass
class Segment:
    """What rows read before a reply.

    Right-padded `tokens: [M, C, T]`, true `lengths: [M, C]`, 0 for rows that sit out, and `fresh: [M, C]` bool, rows
    that forget everything before.
    """

    tokens: jax.Array
    lengths: jax.Array
    fresh: jax.Array


def init_state(
    spec: DecodeSpec, shape: tuple[int, int], penalties: bool = False, *, dtype: Any = jnp.float32
) -> DecodeState:
    """Empty rows of `shape` (M, C), all done."""
    members, rows = shape
    one = init_cache(spec.arch, rows, spec.capacity, dtype)
    cache = jax.tree.map(lambda x: jnp.broadcast_to(x, (members, *x.shape)), one)
    keys = jax.random.wrap_key_data(jnp.zeros((*shape, 2), jnp.uint32), impl="threefry2x32")
    vocabulary = (*shape, spec.arch.vocab_size)
    return DecodeState(
        cache=cache,
        keys=keys,
        tokens=jnp.full((*shape, spec.max_new_tokens), PAD, jnp.int32),
        written=jnp.zeros(shape, jnp.int32),
        last=jnp.zeros(shape, jnp.int32),
        done=jnp.ones(shape, bool),
        counts=Counts(jnp.zeros(vocabulary, jnp.int32), jnp.zeros(vocabulary, bool)) if penalties else None,
    )


def start_turn(
    view: View,
    state: DecodeState,
    segment: Segment,
    keys: jax.Array,
    sampling: Sampling,
    *,
    spec: DecodeSpec,
    axes: Any,
) -> DecodeState:
    """Read `segment` and sample the first token of every row that has one; the others stay as they are.

    Args:
        view: leaves with a leading M axis where `axes` is 0.
        state: donated by the caller's jit.
        segment: rows of length 0 are left alone, in the middle of a reply or not.
        keys: `[M, C]` typed, of that turn.
        sampling: numbers and flags.
        spec: static.
        axes: `jax.vmap` axes of the view: 0, or None where all members share a leaf.
    """
    cache = jax.vmap(reset_rows)(state.cache, segment.fresh)
    read = partial(prefill, arch=spec.arch)
    logits, cache = jax.vmap(read, in_axes=(axes, 0, 0, 0))(view, cache, segment.tokens, segment.lengths)
    starts = segment.lengths > 0
    state = state.replace(
        cache=cache,
        keys=jnp.where(starts, keys, state.keys),
        tokens=jnp.where(starts[..., None], PAD, state.tokens),
        written=jnp.where(starts, 0, state.written),
        done=state.done & ~starts,
        counts=_read_counts(state.counts, segment),
    )
    return _emit(state, logits, starts, sampling, spec)


def decode_segment(
    view: View, state: DecodeState, max_steps: jax.Array | int, sampling: Sampling, *, spec: DecodeSpec, axes: Any
) -> DecodeState:
    """Write tokens until every row is done, or for `max_steps` steps; a row stops at any end id or a full reply."""
    step = jax.vmap(partial(decode_step, arch=spec.arch), in_axes=(axes, 0, 0, 0))

    def unfinished(carry: tuple[jax.Array, DecodeState]) -> jax.Array:
        return (carry[0] < max_steps) & ~jnp.all(carry[1].done)

    def body(carry: tuple[jax.Array, DecodeState]) -> tuple[jax.Array, DecodeState]:
        count, state = carry
        logits, cache = step(view, state.cache, state.last, ~state.done)
        return count + 1, _emit(state.replace(cache=cache), logits, ~state.done, sampling, spec)

    return lax.while_loop(unfinished, body, (jnp.int32(0), state))[1]


def _emit(state: DecodeState, logits: jax.Array, live: jax.Array, sampling: Sampling, spec: DecodeSpec) -> DecodeState:
    """Sample from `logits: [M, C, V]` and append the token of every row that is `live: [M, C]`."""
    token = sample(state.keys, logits, state.written, sampling, vocab_limit=spec.vocab_limit, counts=state.counts)
    here = (jnp.arange(spec.max_new_tokens) == state.written[..., None]) & live[..., None]
    written = state.written + live
    ended = jnp.isin(token, jnp.asarray(spec.eos_ids, jnp.int32)) | (written == spec.max_new_tokens)
    return state.replace(
        tokens=jnp.where(here, token[..., None], state.tokens),
        written=written,
        last=jnp.where(live, token, state.last),
        done=state.done | (live & ended),
        counts=_say(state.counts, token, live),
    )


def _read_counts(counts: Counts | None, segment: Segment) -> Counts | None:
    """Counts at the start of a turn: everything before it is prompt, earlier replies included."""
    if counts is None:
        return None
    starts = segment.lengths[..., None] > 0
    before = (counts.prompt | (counts.generated > 0) & starts) & ~segment.fresh[..., None]
    real = jnp.arange(segment.tokens.shape[-1]) < segment.lengths[..., None]
    ids = jnp.where(real, segment.tokens, before.shape[-1])  # out of range: dropped
    mark = jax.vmap(jax.vmap(lambda seen, i: seen.at[i].set(True, mode="drop")))
    return Counts(generated=jnp.where(starts, 0, counts.generated), prompt=mark(before, ids))


def _say(counts: Counts | None, token: jax.Array, live: jax.Array) -> Counts | None:
    if counts is None:
        return None
    add = jax.vmap(jax.vmap(lambda seen, t, on: seen.at[t].add(on)))
    return counts.replace(generated=add(counts.generated, token, live.astype(jnp.int32)))
