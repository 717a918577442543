"""Greedy replies of the decode loop are transformers' `generate`, token for token."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from hf_replies import greedy_replies

pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[parity]'")

from esopt_jax.config import RolloutConfig
from esopt_jax.rollouts.decode import PAD, DecodeSpec, Segment, decode_segment, init_state, start_turn
from esopt_jax.rollouts.sampler import make_sampling

pytestmark = pytest.mark.parity

NEW, WIDTH = 24, 8
LENGTHS = np.array([8, 5, 3, 1])


def theirs(pair, ids):
    """Replies of a left-padded batch that do not stop, `[B, NEW]`."""
    mask = (np.arange(WIDTH) >= WIDTH - LENGTHS[:, None]).astype(np.int64)
    return greedy_replies(pair.theirs, ids, mask, NEW)


def until(replies, eos):
    """`replies` with `PAD` after their first `eos`."""
    ends = replies == eos
    return np.where(np.cumsum(ends, axis=1) - ends > 0, PAD, replies)


def ours(pair, ids, eos):
    shape = (1, len(LENGTHS))
    spec = DecodeSpec(
        arch=pair.ours.arch,
        eos_ids=(eos,),
        vocab_limit=pair.ours.vocab_limit,
        max_new_tokens=NEW,
        capacity=WIDTH + NEW,
    )
    tokens = np.zeros((*shape, WIDTH), np.int32)
    for row, count in enumerate(LENGTHS):
        tokens[0, row, :count] = ids[row, WIDTH - count :]
    segment = Segment(tokens=tokens, lengths=LENGTHS[None], fresh=np.ones(shape, bool))
    keys, greedy = jax.random.split(jax.random.key(0), shape), make_sampling(RolloutConfig(temperature=0.0))
    axes = dict.fromkeys(pair.ours.params)
    start = jax.jit(partial(start_turn, spec=spec, axes=axes))
    state = start(pair.ours.params, init_state(spec, shape), segment, keys, greedy)
    write = jax.jit(partial(decode_segment, spec=spec, axes=axes))
    return np.asarray(write(pair.ours.params, state, NEW, greedy).tokens)[0]


def test_greedy_replies(pair):
    ids = np.random.default_rng(4).integers(0, 128, (len(LENGTHS), WIDTH))
    free = theirs(pair, ids)
    assert len(np.unique(free)) > 5  # not one token over and over
    # The end id that cuts off least, but something: all other tokens are compared to the last.
    eos = max((int(t) for t in np.unique(free[:, : NEW // 2])), key=lambda t: (until(free, t) != PAD).sum())
    expected = until(free, eos)
    assert 0 < (expected == PAD).sum() < free.size // 2
    np.testing.assert_array_equal(ours(pair, ids, eos), expected)
