"""The whole model against transformers': one shot, padded batches, cached steps, prompts and episodes in pieces."""

from __future__ import annotations

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[parity]'")

from esopt_jax.models.registry import (  # noqa: E402
    decode_step,
    init_cache,
    prefill,
    score,
)

pytestmark = pytest.mark.parity

TOLERANCE = 5e-5
"""On logits of scale 3, float32."""
LENGTHS = np.array([100, 93, 60])
score_jit = jax.jit(score, static_argnames="arch")
prefill_jit = jax.jit(prefill, static_argnames=("arch", "segment"))
step_jit = jax.jit(decode_step, static_argnames="arch")


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(2).integers(0, 128, (3, 100))


def close(found, expected):
    error = np.abs(np.asarray(found) - np.asarray(expected)).max()
    assert error <= TOLERANCE, f"{error:.2e}"


def right(ids, lengths):
    """Each row's last `lengths[b]` ids moved to the front, -1 behind them: `[B, T]`."""
    padded = np.full_like(ids, -1)
    for row, count in enumerate(lengths):
        padded[row, :count] = ids[row, ids.shape[1] - count :]
    return padded


def left_mask(ids, lengths):
    return torch.as_tensor((np.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]).astype(np.int64))


def test_logits(pair, ids):
    found = score_jit(pair.ours.params, ids, np.full(3, 100), arch=pair.ours.arch)
    close(found, pair.logits(ids))


def test_left_padding_there_is_right_padding_here(pair, ids):
    mask = left_mask(ids, LENGTHS)
    theirs = pair.theirs(torch.as_tensor(ids), attention_mask=mask).logits.numpy()
    ours = np.asarray(score_jit(pair.ours.params, right(ids, LENGTHS), LENGTHS, arch=pair.ours.arch))
    for row, count in enumerate(LENGTHS):
        close(ours[row, :count], theirs[row, 100 - count :])


def test_twenty_cached_steps(tied, ids):
    generated = tied.theirs.generate(
        input_ids=torch.as_tensor(ids),
        attention_mask=left_mask(ids, LENGTHS),
        max_new_tokens=20,
        min_new_tokens=20,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    theirs = np.stack([step.numpy() for step in generated.logits], axis=1)
    replies = generated.sequences.numpy()[:, 100:]
    arch, params = tied.ours.arch, tied.ours.params
    cache = init_cache(arch, 3, 128)
    logits, cache = prefill_jit(params, cache, right(ids, LENGTHS), LENGTHS, arch=arch, segment=16)
    ours = [logits]
    for t in range(19):
        logits, cache = step_jit(params, cache, replies[:, t], np.ones(3, bool), arch=arch)
        ours.append(logits)
    close(np.stack(ours, axis=1), theirs)
    assert cache.length.tolist() == (LENGTHS + 19).tolist()


def test_a_long_prompt_is_read_in_pieces(tied, ids):
    lengths = np.array([100, 32, 1])  # beyond the last whole piece, on the edge of one, inside the first
    arch = tied.ours.arch
    cache = init_cache(arch, 3, 128)
    found, cache = prefill_jit(tied.ours.params, cache, ids, lengths, arch=arch, segment=16)
    assert cache.length.tolist() == lengths.tolist()
    for row, count in enumerate(lengths):
        close(found[row], tied.logits(ids[row : row + 1, :count])[0, -1])


def test_a_ragged_episode_is_the_whole_text_at_once(tied):
    """Three turns with an empty and a one-token segment, followed by single steps of some rows only."""
    rng = np.random.default_rng(3)
    arch, params = tied.ours.arch, tied.ours.params
    cache, history = init_cache(arch, 3, 128), [[], [], []]
    for lengths in ([20, 13, 1], [5, 20, 9], [2, 0, 11]):
        tokens = rng.integers(0, 128, (3, 20))
        logits, cache = prefill_jit(params, cache, tokens, np.array(lengths), arch=arch)
        for row, count in enumerate(lengths):
            history[row] += tokens[row, :count].tolist()
            if count:
                close(logits[row], tied.logits([history[row]])[0, -1])
    for live in ([True, False, True], [False, True, True], [True, True, False]):
        tokens = rng.integers(0, 128, 3)
        logits, cache = step_jit(params, cache, tokens, np.array(live), arch=arch)
        for row in np.flatnonzero(live):
            history[row].append(int(tokens[row]))
            close(logits[row], tied.logits([history[row]])[0, -1])
    assert cache.length.tolist() == [len(row) for row in history]
