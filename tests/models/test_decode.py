"""Rows, padding, capacity and compute type of `prefill` and `decode_step`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.models.cache import DeltaNetCache, init_cache, reset_rows
from esopt_jax.models.qwen3_5 import decode_step, prefill, score

B, T, S = 3, 12, 32
LENGTHS = np.array([12, 5, 1])
prefill_jit = jax.jit(prefill, static_argnames=("arch", "segment"))
step_jit = jax.jit(decode_step, static_argnames="arch")
score_jit = jax.jit(score, static_argnames="arch")


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(0).integers(0, 48, (B, T))


@pytest.fixture(scope="module")
def read(tiny, tokens):
    """Logits and cache after the ragged segment `tokens`."""
    return prefill_jit(tiny.params, init_cache(tiny.arch, B, S), tokens, LENGTHS, arch=tiny.arch)


def rows_of(cache, row):
    """What `row` may read of the cache: everything but keys and values at or beyond its length."""
    length = int(cache.length[row])
    kept = [np.asarray(length)]
    for layer in cache.layers:
        if isinstance(layer, DeltaNetCache):
            kept += [np.asarray(x[row]) for x in jax.tree.leaves(layer)]
        else:
            kept += [np.asarray(layer.k[row, :, :, :length]), np.asarray(layer.v[row, :, :length])]
    return kept


def same_bits(one, other):
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


def close(one, other, tolerance=2e-5):
    error = np.abs(np.asarray(one, np.float32) - np.asarray(other, np.float32)).max()
    assert error <= tolerance, f"{error:.2e}"


def test_padding_is_never_read(tiny, tokens, read):
    other = np.where(np.arange(T) < LENGTHS[:, None], tokens, 47 - tokens)
    logits, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, S), other, LENGTHS, arch=tiny.arch)
    assert bits((logits, cache)) == bits(read)


def test_a_row_does_not_depend_on_the_others(tiny, tokens, read):
    others = tokens.copy()
    others[0] = 47 - others[0]
    lengths = np.array([3, 5, 1])
    logits, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, S), others, lengths, arch=tiny.arch)
    for row in (1, 2):
        assert np.array_equal(logits[row], read[0][row])
        assert same_bits(rows_of(cache, row), rows_of(read[1], row))
    ours, after = step_jit(tiny.params, cache, np.array([1, 2, 3]), np.ones(B, bool), arch=tiny.arch)
    theirs, expected = step_jit(
        tiny.params, read[1], np.array([9, 2, 3]), np.array([False, True, True]), arch=tiny.arch
    )
    for row in (1, 2):
        assert np.array_equal(ours[row], theirs[row])
        assert same_bits(rows_of(after, row), rows_of(expected, row))


def test_width_of_the_padding_and_capacity_do_not_matter(tiny, tokens, read):
    wide = np.pad(tokens, ((0, 0), (0, 9)))
    logits, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, 40), wide, LENGTHS, arch=tiny.arch)
    close(logits, read[0])
    assert cache.length.tolist() == LENGTHS.tolist()


def test_cached_steps_are_the_whole_text(tiny, tokens):
    whole = score_jit(tiny.params, tokens, np.full(B, T), arch=tiny.arch)
    logits, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, S), tokens[:, :4], np.full(B, 4), arch=tiny.arch)
    close(logits, whole[:, 3])
    for t in range(4, T):
        logits, cache = step_jit(tiny.params, cache, tokens[:, t], np.ones(B, bool), arch=tiny.arch)
        close(logits, whole[:, t])


def test_a_row_that_is_not_live_keeps_its_bits(tiny, read):
    live = np.array([True, False, False])
    after = step_jit(tiny.params, read[1], np.array([1, 2, 3]), live, arch=tiny.arch)[1]
    assert after.length.tolist() == [13, 5, 1]
    keep = lambda tree: jax.tree.map(lambda x: x[1:], tree)  # noqa: E731
    assert bits(keep(after)) == bits(keep(read[1]))
    assert bits(after) != bits(read[1])


def test_a_row_without_tokens_keeps_its_bits(tiny, tokens, read):
    after = prefill_jit(tiny.params, read[1], tokens, np.array([0, 4, 0]), arch=tiny.arch)[1]
    assert after.length.tolist() == [12, 9, 1]
    for row in (0, 2):
        assert bits(jax.tree.map(lambda x, row=row: x[row], after)) == bits(
            jax.tree.map(lambda x, row=row: x[row], read[1])
        )


def test_a_row_without_tokens_keeps_its_bits_over_pieces(tiny, tokens, read):
    after = prefill_jit(tiny.params, read[1], tokens, np.array([0, 7, 5]), arch=tiny.arch, segment=5)[1]
    assert after.length.tolist() == [12, 12, 6]
    assert bits(jax.tree.map(lambda x: x[0], after)) == bits(jax.tree.map(lambda x: x[0], read[1]))


def test_reset_rows_start_afresh_and_others_go_on(tiny, tokens, read):
    cache = reset_rows(read[1], jnp.array([True, False, True]))
    assert cache.length.tolist() == [0, 5, 0]
    assert bits(jax.tree.map(lambda x: x[1], cache)) == bits(jax.tree.map(lambda x: x[1], read[1]))
    logits, after = prefill_jit(tiny.params, cache, tokens, LENGTHS, arch=tiny.arch)
    close(logits[::2], read[0][::2])
    both = np.concatenate([tokens[1, :5], tokens[1, :5]])[None]
    whole = score_jit(tiny.params, np.pad(both, ((0, 0), (0, 2))), np.array([10]), arch=tiny.arch)
    close(logits[1], whole[0, 9])
    assert after.length.tolist() == [12, 10, 1]


@pytest.mark.parametrize("segment", [256, 5])
def test_a_padded_segment_at_the_edge_of_the_cache(tiny, tokens, segment):
    """Its padding would reach beyond the capacity; a clamped write would shift it onto live keys."""
    capacity = 14
    cache = init_cache(tiny.arch, B, capacity)
    _, cache = prefill_jit(tiny.params, cache, tokens, np.array([10, 12, 11]), arch=tiny.arch)
    more = tokens[:, ::-1]
    lengths = np.array([4, 2, 0])
    logits, after = prefill_jit(tiny.params, cache, more, lengths, arch=tiny.arch, segment=segment)
    assert after.length.tolist() == [14, 14, 11]
    for row, (before, count) in enumerate(zip((10, 12, 11), lengths, strict=True)):
        text = np.concatenate([tokens[row, :before], more[row, :count]])[None]
        whole = score_jit(
            tiny.params, np.pad(text, ((0, 0), (0, 14 - text.size))), np.array([text.size]), arch=tiny.arch
        )
        if count:
            close(logits[row], whole[0, text.size - 1])
    kept = step_jit(tiny.params, after, np.array([1, 1, 1]), np.array([False, False, True]), arch=tiny.arch)[1]
    for row in (0, 1):
        assert same_bits(rows_of(kept, row), rows_of(after, row))


def test_a_token_beyond_the_capacity_is_dropped(tiny, tokens):
    cache = init_cache(tiny.arch, B, T)
    _, cache = prefill_jit(tiny.params, cache, tokens, np.full(B, T), arch=tiny.arch)
    logits, after = step_jit(tiny.params, cache, tokens[:, 0], np.ones(B, bool), arch=tiny.arch)
    assert np.isfinite(logits).all()
    assert bits(after.layers[1]) == bits(cache.layers[1])


def test_bfloat16_is_close_to_float32(tiny, tokens):
    """Within the error of eight bits of mantissa through two layers, and the state stays float32."""
    keep = {spec.path for spec in tiny.specs if spec.keep_float32}
    half = {path: x if path in keep else x.astype(jnp.bfloat16) for path, x in tiny.params.items()}
    whole = score_jit({p: x.astype(jnp.float32) for p, x in half.items()}, tokens, LENGTHS, arch=tiny.arch)
    logits, cache = prefill_jit(half, init_cache(tiny.arch, B, S, jnp.bfloat16), tokens, LENGTHS, arch=tiny.arch)
    assert logits.dtype == jnp.float32
    expected = np.stack([whole[row, count - 1] for row, count in enumerate(LENGTHS)])
    close(logits, expected, 0.05 * np.abs(expected).max())
    after = step_jit(half, cache, tokens[:, 0], np.ones(B, bool), arch=tiny.arch)[1]
    assert [x.dtype for x in jax.tree.leaves(after)] == [x.dtype for x in jax.tree.leaves(cache)]
    assert cache.layers[0].state.dtype == jnp.float32 and cache.layers[1].k.dtype == jnp.bfloat16


def test_a_row_without_any_token_stays_finite(tiny, tokens):
    logits, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, S), tokens, np.zeros(B, np.int32), arch=tiny.arch)
    assert np.isfinite(logits).all()
    assert bits(cache) == bits(init_cache(tiny.arch, B, S))
