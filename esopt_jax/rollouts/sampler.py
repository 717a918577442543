"""From logits to a token: penalties, temperature, min-p, top-k, top-p, then Gumbel-max.

The order is that of vLLM's current sampler. Every number is traced, so one compiled program serves any temperature
(0 is greedy) and any threshold; `Flags` say which steps exist at all, so that those never wanted cost nothing.

The noise of a token depends on the row's key, the position and the token id alone: a filter removes tokens, it never
changes what the others draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

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
    scores, ids = _candidates(logits, sampling, vocab_limit, counts)
    kept = _filtered(scores, sampling)
    noisy = kept + gumbel(token_bits(keys, position, ids))
    place = argmax(jnp.where(sampling.temperature > 0, noisy, scores))
    if sampling.flags.top_k:
        return jnp.take_along_axis(ids, place[..., None], axis=-1)[..., 0]
    return place


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


def keep_min_p(scores: jax.Array, min_p: jax.Array) -> jax.Array:
    """`-inf` where the probability is below `min_p` times the largest."""
    return jnp.where(scores >= jnp.max(scores, axis=-1, keepdims=True) + jnp.log(min_p), scores, -jnp.inf)


def keep_top_p(scores: jax.Array, top_p: jax.Array) -> jax.Array:
    """`-inf` outside the smallest set of likeliest tokens whose mass reaches `top_p`; equals of the last are kept.

    The smallest kept probability is found by bisection on its bit pattern, which orders like the number itself: 31 sums
    instead of a sort. `top_p` 1 keeps everything, whatever the rounding of the sum.
    """
    mass = jax.nn.softmax(scores, axis=-1)
    bits = lax.bitcast_convert_type(mass, jnp.int32)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds  # reaching top_p with tokens >= low is possible, with tokens >= high it is not
        middle = low + (high - low) // 2
        enough = jnp.sum(jnp.where(bits >= middle, mass, 0), axis=-1, keepdims=True) >= top_p
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


def _candidates(
    logits: jax.Array, sampling: Sampling, vocab_limit: int, counts: Counts | None
) -> tuple[jax.Array, jax.Array]:
    """Penalised scores and their token ids: the whole vocabulary, or the `top_k` best in falling order."""
    ids = jnp.arange(logits.shape[-1], dtype=jnp.int32)
    scores = logits.astype(jnp.float32)
    if sampling.flags.penalties:
        if counts is None:
            raise ValueError("a sampler with penalties needs counts")
        scores = penalise(scores, counts, sampling)
    scores = jnp.where((ids < vocab_limit) & jnp.isfinite(scores), scores, -jnp.inf)
    # Top-k comes before min-p here: both keep a prefix of the same order, so they commute, and the rest is cheap on k.
    if sampling.flags.top_k:
        return lax.top_k(scores, min(sampling.flags.top_k, logits.shape[-1]))
    return scores, jnp.broadcast_to(ids, scores.shape)


def _filtered(scores: jax.Array, sampling: Sampling) -> jax.Array:
    scores = scores / jnp.where(sampling.temperature > 0, sampling.temperature, 1.0)
    if sampling.flags.min_p:
        scores = keep_min_p(scores, sampling.min_p)
    if sampling.flags.top_p:
        scores = keep_top_p(scores, sampling.top_p)
    return scores


def _first(hit: jax.Array) -> jax.Array:
    """Index of the first True along the last axis; the last index when there is none."""
    index = jnp.arange(hit.shape[-1], dtype=jnp.int32)
    return jnp.min(jnp.where(hit, index, hit.shape[-1] - 1), axis=-1)


def _penalised(r: RolloutConfig) -> bool:
    return r.presence_penalty != 0 or r.frequency_penalty != 0 or r.repetition_penalty != 1
