"""The loss of group-relative policy optimisation as pure functions of arrays; `grpo` runs it.

Source: Shao et al. (2024), DeepSeekMath, section 4.1: advantages relative to the other episodes of a task, a clipped
likelihood ratio, and a penalty on the distance to the start. Nothing here knows of models or episodes.

Two readings of "log-probability of a token" exist. `sampled` is that of the distribution that the token was drawn from,
after penalties, temperature and filters; only then is the ratio of two policies an importance weight. `raw` is the
softmax of the logits as they are, which the published baseline used whatever it sampled from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from esopt_jax.core.shaping import DEGENERATE
from esopt_jax.rollouts.sampler import Counts, Sampling, candidates, filtered

LogProbs = Literal["sampled", "raw"]
Average = Literal["sequence", "token"]

IMPOSSIBLE = -1e4
"""Log-probability of a token that the filters of a policy remove; finite, so that no gradient becomes NaN."""

FAR = 20.0
"""Differences of log-probabilities count up to here: beyond, a ratio says no more than "never"."""


class TokenLogProbs(NamedTuple):
    """Of the tokens of replies, `[...]` float32: as they are drawn, and before min-p, top-k and top-p.

    The second is finite for every token, so that it serves for distances between policies whose filters differ.
    """

    drawn: jax.Array
    open: jax.Array


class TokenLoss(NamedTuple):
    """Per token, `[...]` float32: the loss, the estimate of the divergence in it, and whether the clip was active."""

    loss: jax.Array
    divergence: jax.Array
    clipped: jax.Array


def group_advantages(returns: np.ndarray, *, scaled: bool = True) -> np.ndarray:
    """How much better each episode was than the others on its task.

    Args:
        returns: `[tasks, episodes]`, NaN for infrastructure errors, which count for nothing.
        scaled: divide by the group's standard deviation (ddof 0).

    Returns:
        `[tasks, episodes]` float32; 0 for errors, and for a whole group whose returns do not differ.

    Example:
        >>> group_advantages(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, np.nan]])).tolist()
        [[-1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    there = ~np.isnan(returns)
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    values = np.where(there, returns, 0.0).astype(np.float64)
    mean = values.sum(axis=1, keepdims=True) / count
    centred = np.where(there, values - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / count)
    alike = spread < DEGENERATE * np.maximum(1.0, np.abs(mean))
    scale = np.where(alike, 1.0, spread) if scaled else 1.0
    return np.where(alike, 0.0, centred / scale).astype(np.float32)


def token_weights(lengths: np.ndarray, *, average: Average) -> np.ndarray:
    """What each token of a reply weighs in the loss of a batch; the weights of all its tokens sum to 1.

    Args:
        lengths: `[replies]` tokens of each, at least 1.
        average: `sequence` gives every reply the same weight, `token` every token.

    Returns:
        `[replies]` float32, the weight of one token of each.

    Example:
        >>> token_weights(np.array([1, 3]), average="sequence").tolist() == [np.float32(1 / 2), np.float32(1 / 6)]
        True
        >>> token_weights(np.array([1, 3]), average="token").tolist()
        [0.25, 0.25]
    """
    lengths = np.asarray(lengths, np.float64)
    each = 1 / (len(lengths) * lengths) if average == "sequence" else np.full(len(lengths), 1 / lengths.sum())
    return each.astype(np.float32)


def token_log_probs(
    logits: jax.Array,
    tokens: jax.Array,
    sampling: Sampling,
    *,
    vocab_limit: int,
    counts: Counts | None = None,
    form: LogProbs = "sampled",
) -> TokenLogProbs:
    """Log-probabilities of `tokens` under `logits`.

    Args:
        logits: `[..., V]`.
        tokens: `[...]` int32.
        sampling: what the tokens were drawn with; its temperature is above 0.
        vocab_limit: static; ids from here on are never drawn.
        counts: needed when `sampling.flags.penalties`, as they were when each token was drawn.
        form: `sampled` or `raw`; static.

    Example:
        >>> from esopt_jax.config import RolloutConfig
        >>> from esopt_jax.rollouts.sampler import make_sampling
        >>> logits, cold = jnp.log(jnp.array([0.5, 0.3, 0.2])), make_sampling(RolloutConfig(top_p=0.7))
        >>> found = token_log_probs(logits, jnp.int32(0), cold, vocab_limit=3)
        >>> [round(float(jnp.exp(x)), 3) for x in found]
        [0.625, 0.5]
    """
    if form == "raw":
        found = _of(jax.nn.log_softmax(logits.astype(jnp.float32)), tokens)
        return TokenLogProbs(found, found)
    whole = replace(sampling, flags=replace(sampling.flags, top_k=0, top_p=False, min_p=False))
    every, _ = candidates(logits, whole, vocab_limit=vocab_limit, counts=counts)
    free = _of(jax.nn.log_softmax(filtered(every, whole)), tokens)
    if sampling.flags == whole.flags:
        return TokenLogProbs(free, free)
    scores, ids = candidates(logits, sampling, vocab_limit=vocab_limit, counts=counts)
    # Which tokens are kept is a step function of the weights: it has no gradient, and its bisection needs none.
    kept = jnp.isfinite(filtered(jax.lax.stop_gradient(scores), sampling))
    scores = jnp.where(kept, scores, -jnp.inf) / sampling.temperature
    here = (ids == tokens[..., None]) & kept
    mine = jnp.sum(jnp.where(here, jnp.where(kept, scores, 0.0), 0.0), axis=-1)
    drawn = jnp.where(here.any(axis=-1), mine - jax.nn.logsumexp(scores, axis=-1), IMPOSSIBLE)
    return TokenLogProbs(drawn, free)


def reply_counts(tokens: jax.Array, starts: jax.Array, positions: jax.Array, *, size: int) -> Counts:
    """What penalties looked at when the token at each of `positions` was drawn.

    Args:
        tokens: `[T]` int32, a whole conversation since the agent last forgot everything.
        starts: `[N]` int32, where the reply of each position begins.
        positions: `[N]` int32, indices in `tokens`.
        size: V; static.

    Returns:
        Counts `[N, V]`: of the reply so far, and which ids came before the reply.
    """
    index = jnp.arange(tokens.shape[0])
    said = (index >= starts[:, None]) & (index < positions[:, None])
    before = index < starts[:, None]
    count = jax.vmap(lambda which: jnp.zeros(size, jnp.int32).at[tokens].add(which.astype(jnp.int32)))
    return Counts(generated=count(said), prompt=count(before) > 0)  # type: ignore[no-untyped-call]


def k3(new: jax.Array, reference: jax.Array) -> jax.Array:
    """Estimate of the divergence of a policy from a reference, of tokens that the policy drew; never negative.

    `exp(d) - d - 1` with `d = reference - new`: Schulman (2020), "Approximating KL divergence".

    Example:
        >>> float(k3(jnp.float32(-1.5), jnp.float32(-1.5)))
        0.0
    """
    d = jnp.clip(reference - new, -FAR, FAR)
    return jnp.exp(d) - d - 1


def token_losses(
    new: TokenLogProbs,
    old: jax.Array,
    reference: jax.Array | None,
    advantages: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    beta: float,
) -> TokenLoss:
    """The loss of each token, to be minimised.

    Args:
        new: of the policy being trained, `[...]`.
        old: of the policy that drew the tokens, as `new.drawn`.
        reference: of the start, as `new.open`; None where `beta` is 0.
        advantages: `[...]` float32.
        clip_low: a ratio counts down to `1 - clip_low` ...
        clip_high: ... and up to `1 + clip_high`, where going further would raise the objective.
        beta: weight of the divergence.

    Example:
        >>> drawn = jnp.log(jnp.array([1.5]))
        >>> found = token_losses(TokenLogProbs(drawn, drawn), jnp.zeros(1), None, jnp.ones(1),
        ...     clip_low=0.2, clip_high=0.28, beta=0.0)
        >>> found.loss.tolist(), found.clipped.tolist()
        ([-1.2799999713897705], [1.0])
    """
    ratio = jnp.exp(jnp.clip(new.drawn - old, -FAR, FAR))
    bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    plain, safe = -advantages * ratio, -advantages * bounded
    divergence = jnp.zeros_like(plain) if reference is None else k3(new.open, reference)
    return TokenLoss(
        loss=jnp.maximum(plain, safe) + beta * divergence,
        divergence=divergence,
        clipped=(safe > plain).astype(jnp.float32),
    )


def _of(scores: jax.Array, tokens: jax.Array) -> jax.Array:
    found = jnp.take_along_axis(scores, tokens[..., None], axis=-1)[..., 0]
    return jnp.where(jnp.isfinite(found), found, IMPOSSIBLE)
