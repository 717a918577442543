"""From logits to a token: penalties, temperature, min-p, top-k, top-p, then Gumbel-max.

The order is that of vLLM's current sampler. Every number is traced, so one compiled program serves any temperature
(0 is greedy) and any threshold; `Flags` say which steps exist at all, so that those never wanted cost nothing.

The noise of a token depends on the row's key, the position and the token id alone: a filter removes tokens, it never
changes what the others draw. Where the vocabulary is cut over a mesh axis, which `across` names, devices exchange a few
numbers a row, never the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jax.sharding import PartitionSpec

from esopt_jax.config import RolloutConfig
from esopt_jax.rollouts.keys import token_bits


@dataclass(frozen=True)
class Flags:
    """Which steps a compiled sampler has. `top_k` is the number of kept tokens, 0 for all."""

    top_k: int = 0
    top_p: bool = False
    min_p: bool = False
    penalties: bool = False
    presence_of_prompt: bool = False


@struct.dataclass
class Sampling:
    """How to sample: float32 scalars, and the static steps that exist. `temperature` 0 is greedy."""

    temperature: jax.Array
    top_p: jax.Array
    min_p: jax.Array
    presence: jax.Array
    frequency: jax.Array
    repetition: jax.Array
    flags: Flags = struct.field(pytree_node=False)


@struct.dataclass
class Counts:
    """What penalties look at: `generated: [..., V]` int32, in the reply; `prompt: [..., V]` bool, before it."""

    generated: jax.Array
    prompt: jax.Array


def sampling_flags(*rollouts: RolloutConfig) -> Flags:
    """The steps that any of `rollouts` needs; samplings with equal flags share a compiled program.

    Raises:
        ValueError: the rollouts differ in `top_k` or in the scope of the presence penalty, which are compiled in.
    """
    fixed = {(r.top_k, r.presence_penalty_scope == "all") for r in rollouts}
    if len(fixed) != 1:
        raise ValueError(
            f"samplings that share a program need one (top_k, presence_penalty_scope), not {sorted(fixed)}"
        )
    top_k, presence_of_prompt = fixed.pop()
    return Flags(
        top_k=top_k,
        top_p=any(r.top_p < 1 for r in rollouts),
        min_p=any(r.min_p > 0 for r in rollouts),
        penalties=any(_penalised(r) for r in rollouts),
        presence_of_prompt=presence_of_prompt,
    )


def make_sampling(rollout: RolloutConfig, *, flags: Flags | None = None) -> Sampling:
    """The sampling of a config. `flags` may have more steps than it needs; those are then without effect.

    Example:
        >>> greedy, warm = RolloutConfig(temperature=0), RolloutConfig(temperature=0.7, top_p=0.8)
        >>> flags = sampling_flags(greedy, warm)
        >>> make_sampling(greedy, flags=flags).flags == make_sampling(warm, flags=flags).flags
        True
    """
    scalars = {
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "min_p": rollout.min_p,
        "presence": rollout.presence_penalty,
        "frequency": rollout.frequency_penalty,
        "repetition": rollout.repetition_penalty,
    }
    return Sampling(
        **{name: jnp.asarray(value, jnp.float32) for name, value in scalars.items()},
        flags=sampling_flags(rollout) if flags is None else flags,
    )


def sample(
    keys: jax.Array,
    logits: jax.Array,
    position: jax.Array,
    sampling: Sampling,
    *,
    vocab_limit: int,
    counts: Counts | None = None,
) -> jax.Array:
    """One token per row.

    Args:
        keys: `[...]` typed, one per row.
        logits: `[..., V]`. Ids from `vocab_limit` on, and values that are not finite, are never chosen.
        position: `[...]` int32, index of the token in its reply; folded into the key.
        sampling: numbers and flags.
        vocab_limit: static.
        counts: needed when `sampling.flags.penalties`.

    Returns:
        `[...]` int32. Ties go to the lowest id, so greedy choices are reproducible.
    """
    draw = partial(_sample, vocab_limit=vocab_limit)
    sharding = jax.typeof(logits).sharding
    axis = sharding.spec[-1]
    if axis is None:
        return draw(keys, logits, position, sampling, counts)
    whole = PartitionSpec()
    run = jax.shard_map(
        partial(draw, across=axis),
        mesh=sharding.mesh,
        in_specs=(whole, sharding.spec, whole, whole, whole),
        out_specs=whole,
        axis_names={axis},
    )
    return run(keys, logits, position, sampling, counts)


def _sample(
    keys: jax.Array,
    logits: jax.Array,
    position: jax.Array,
    sampling: Sampling,
    counts: Counts | None,
    *,
    vocab_limit: int,
    across: str | None = None,
) -> jax.Array:
    """`sample` of a whole vocabulary, or of this device's part of one that is cut over the mesh axis `across`."""
    scores, ids = candidates(logits, sampling, vocab_limit=vocab_limit, counts=counts, across=across)
    if sampling.flags.top_k:
        across = None  # every device has all candidates
    kept = filtered(scores, sampling, across=across)
    noisy = kept + gumbel(token_bits(keys, position, ids))
    place = argmax(jnp.where(sampling.temperature > 0, noisy, scores))
    if sampling.flags.top_k:
        return jnp.take_along_axis(ids, place[..., None], axis=-1)[..., 0]
    if across is None:
        return place
    chosen = jnp.where(sampling.temperature > 0, noisy, scores)
    best = jnp.take_along_axis(chosen, place[..., None], axis=-1)[..., 0]
    token = place + lax.axis_index(across) * logits.shape[-1]
    return lax.pmin(jnp.where(best == lax.pmax(best, across), token, jnp.iinfo(jnp.int32).max), across)


def candidates(
    logits: jax.Array,
    sampling: Sampling,
    *,
    vocab_limit: int,
    counts: Counts | None = None,
    across: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Penalised scores and their token ids: the vocabulary here, or the `top_k` best of all in falling order.

    A reply is drawn from the softmax of these, once they are `filtered`.
    """
    size = logits.shape[-1]
    first = 0 if across is None else lax.axis_index(across) * size
    ids = first + jnp.arange(size, dtype=jnp.int32)
    scores = logits.astype(jnp.float32)
    if sampling.flags.penalties:
        if counts is None:
            raise ValueError("a sampler with penalties needs counts")
        here = (
            counts if across is None else jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, size, -1), counts)
        )
        scores = penalise(scores, here, sampling)
    scores = jnp.where((ids < vocab_limit) & jnp.isfinite(scores), scores, -jnp.inf)
    # Top-k comes before min-p here: both keep a prefix of the same order, so they commute, and the rest is cheap on k.
    if not sampling.flags.top_k:
        return scores, jnp.broadcast_to(ids, scores.shape)
    scores, places = lax.top_k(scores, min(sampling.flags.top_k, size))
    if across is None:
        return scores, places
    scores, ids = _side_by_side(scores, across), _side_by_side(first + places, across)
    scores, places = lax.top_k(scores, min(sampling.flags.top_k, scores.shape[-1]))
    return scores, jnp.take_along_axis(ids, places, axis=-1)


def filtered(scores: jax.Array, sampling: Sampling, *, across: str | None = None) -> jax.Array:
    """Scores over the temperature, `-inf` for candidates that min-p or top-p removes."""
    scores = scores / jnp.where(sampling.temperature > 0, sampling.temperature, 1.0)
    if sampling.flags.min_p:
        scores = keep_min_p(scores, sampling.min_p, across=across)
    if sampling.flags.top_p:
        scores = keep_top_p(scores, sampling.top_p, across=across)
    return scores


def penalise(logits: jax.Array, counts: Counts, sampling: Sampling) -> jax.Array:
    """`[..., V]` logits after repetition, frequency and presence penalties, as vLLM and the OpenAI API define them.

    Repetition divides positive and multiplies negative logits of tokens in prompt or reply; frequency counts the reply;
    presence looks at the reply, or with `presence_of_prompt` at the prompt too, as the published runs did.
    """
    said = counts.generated > 0
    seen = said | counts.prompt
    scale = jnp.where(seen, sampling.repetition, 1.0)
    logits = jnp.where(logits > 0, logits / scale, logits * scale)
    logits = logits - sampling.frequency * counts.generated
    present = seen if sampling.flags.presence_of_prompt else said
    return logits - sampling.presence * present


def keep_min_p(scores: jax.Array, min_p: jax.Array, *, across: str | None = None) -> jax.Array:
    """`-inf` where the probability is below `min_p` times the largest."""
    return jnp.where(scores >= _largest(scores, across) + jnp.log(min_p), scores, -jnp.inf)


def keep_top_p(scores: jax.Array, top_p: jax.Array, *, across: str | None = None) -> jax.Array:
    """`-inf` outside the smallest set of likeliest tokens whose mass reaches `top_p`; equals of the last are kept.

    The smallest kept probability is found by bisection on its bit pattern, which orders like the number itself: 31 sums
    instead of a sort. `top_p` 1 keeps everything, whatever the rounding of the sum.
    """
    mass = jnp.exp(scores - _largest(scores, across))
    mass = mass / _total(mass, across)
    bits = lax.bitcast_convert_type(mass, jnp.int32)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds  # reaching top_p with tokens >= low is possible, with tokens >= high it is not
        middle = low + (high - low) // 2
        enough = _total(jnp.where(bits >= middle, mass, 0), across) >= top_p
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.zeros((*scores.shape[:-1], 1), jnp.int32)
    threshold, _ = lax.fori_loop(0, 31, halve, (low, jnp.full_like(low, _BITS_ABOVE_1)))
    return jnp.where((bits >= threshold) | (top_p >= 1), scores, -jnp.inf)


def gumbel(bits: jax.Array) -> jax.Array:
    """Standard Gumbel values `-log(-log(1 - u))` of uint32 words, float32, in about -2.8 .. 22.9.

    `u` near 0 gives the large values; there a float32 keeps its relative precision, so that far tails stay distinct.
    """
    u = (bits.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)
    return -jnp.log(-jnp.log1p(-jnp.minimum(u, jnp.float32(1 - 2.0**-24))))


def argmax(x: jax.Array) -> jax.Array:
    """Lowest index of the largest value of the last axis: `[..., V]` without NaN -> `[...]` int32.

    Two levels, the best of each block and then inside the best block: 10 times the speed of one reduction over (value,
    index) pairs on a CPU, and more when `x` is still to be computed.
    """
    size = x.shape[-1]
    width = 1 << ((size - 1).bit_length() + 1) // 2
    count = -(-size // width)
    x = jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, count * width - size),), constant_values=-jnp.inf)
    blocks = x.reshape(*x.shape[:-1], count, width)
    best = jnp.max(blocks, axis=-1)
    block = _first(best == jnp.max(best, axis=-1, keepdims=True))
    inside = jnp.take_along_axis(blocks, block[..., None, None], axis=-2)[..., 0, :]
    return block * width + _first(inside == jnp.max(inside, axis=-1, keepdims=True))


_BITS_ABOVE_1 = 0x3F800000 + (1 << 20)
"""Bit pattern of a float32 above every probability, whatever the rounding of a softmax."""


def _side_by_side(x: jax.Array, across: str) -> jax.Array:
    """The devices' `[..., K]` next to each other, on all of them: one small all-reduce, since all but one are 0."""
    shape = (*x.shape[:-1], lax.axis_size(across), x.shape[-1])
    own = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 2) == lax.axis_index(across)
    spread = jnp.where(own, x[..., None, :], jnp.zeros((), x.dtype))
    return lax.psum(spread, across).reshape(*x.shape[:-1], -1)


def _largest(x: jax.Array, across: str | None) -> jax.Array:
    """The maximum of the last axis, which stays as one of size 1; over all devices where that axis is cut."""
    found = jnp.max(x, axis=-1, keepdims=True)
    return found if across is None else lax.pmax(found, across)


def _total(x: jax.Array, across: str | None) -> jax.Array:
    """The sum of the last axis, likewise."""
    found = jnp.sum(x, axis=-1, keepdims=True)
    return found if across is None else lax.psum(found, across)


def _first(hit: jax.Array) -> jax.Array:
    """Index of the first True along the last axis; the last index when there is none."""
    index = jnp.arange(hit.shape[-1], dtype=jnp.int32)
    return jnp.min(jnp.where(hit, index, hit.shape[-1] - 1), axis=-1)


def _penalised(r: RolloutConfig) -> bool:
    return r.presence_penalty != 0 or r.frequency_penalty != 0 or r.repetition_penalty != 1
