"""From episodes to what a gradient is taken of: whole conversations, of which the agent's own tokens count.

Token ids are those that were read and drawn, never those of a text tokenised again. A conversation begins where the
agent forgot everything before; one that grows over turns is one sequence with several replies in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from flax import struct

from esopt_jax.rollouts.policy import padded_length
from esopt_jax.training.baselines.grpo_loss import Average, token_weights
from esopt_jax.types import Trajectory


@dataclass(frozen=True)
class Conversation:
    """Token ids, where in them the replies are, as (first, end), and the advantage of the episode."""

    tokens: tuple[int, ...]
    replies: tuple[tuple[int, int], ...]
    advantage: float


@struct.dataclass
class Batch:
    """B conversations, right-padded to T tokens.

    Attributes:
        tokens: `[B, T]` int32.
        lengths: `[B]` int32.
        starts: `[B, T]` int32, where the reply begins that a token belongs to.
        weights: `[B, T]` float32, what each token weighs in the loss; 0 for what the agent did not write.
        advantages: `[B]` float32.
    """

    tokens: jax.Array | np.ndarray
    lengths: jax.Array | np.ndarray
    starts: jax.Array | np.ndarray
    weights: jax.Array | np.ndarray
    advantages: jax.Array | np.ndarray


def conversations(episode: Trajectory, advantage: float) -> list[Conversation]:
    """The conversations of an episode, in order."""
    found: list[Conversation] = []
    for turn in episode.turns:
        before = Conversation((), (), advantage) if turn.fresh or not found else found.pop()
        first = len(before.tokens) + len(turn.prompt_ids)
        tokens = (*before.tokens, *turn.prompt_ids, *turn.completion_ids)
        found.append(Conversation(tokens, (*before.replies, (first, len(tokens))), advantage))
    return found


def make_batches(
    chosen: Sequence[Conversation], *, size: int, capacity: int, average: Average, idle: bool
) -> list[Batch]:
    """Batches whose losses sum to that of one optimiser step, which does not depend on `size`.

    Args:
        chosen: the conversations of the step, at least one.
        size: B, the same for all; what is missing of the last is filled with rows that weigh nothing.
        capacity: tokens of the longest conversation there may be.
        average: of the loss, over all replies of the step.
        idle: whether conversations of advantage 0 have a gradient; without, they count but are left out.
    """
    lengths = np.array([end - first for one in chosen for first, end in one.replies])
    each = iter(token_weights(lengths, average=average).tolist())
    weighed = [(one, [next(each) for _ in one.replies]) for one in chosen]
    kept = [pair for pair in weighed if idle or pair[0].advantage != 0]
    kept.sort(key=lambda pair: len(pair[0].tokens))  # alike in length, so that little is padding
    return [_batch(kept[i : i + size], size, capacity) for i in range(0, len(kept), size)]


def _batch(part: Sequence[tuple[Conversation, list[float]]], size: int, capacity: int) -> Batch:
    width = padded_length(max(len(one.tokens) for one, _ in part), capacity)
    tokens, starts = np.zeros((2, size, width), np.int32)
    weights = np.zeros((size, width), np.float32)
    lengths, advantages = np.ones(size, np.int32), np.zeros(size, np.float32)
    for row, (one, each) in enumerate(part):
        lengths[row], advantages[row] = len(one.tokens), one.advantage
        tokens[row, : len(one.tokens)] = one.tokens
        for (first, end), weight in zip(one.replies, each, strict=True):
            starts[row, first:end], weights[row, first:end] = first, weight
    return Batch(tokens, lengths, starts, weights, advantages)
