"""Rows, padding, capacity and compute type of `prefill` and `decode_step`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.models.cache import DeltaNetCache, reset_rows
from esopt_jax.models.registry import decode_step, init_cache, prefill, score

B, T, S = 3, 12, 14
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


def whole_text(model, texts):
    """Logits `[V]` after each of B texts, read at once."""
    padded = np.stack([np.pad(text, (0, S - len(text))) for text in texts])
    logits = score_jit(model.params, padded, np.array([len(text) for text in texts]), arch=model.arch)
    return np.stack([logits[row, len(text) - 1] for row, text in enumerate(texts)])


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
    logits, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, S), tokens, np.full(B, 4), arch=tiny.arch)
    for t in range(4, T):
        close(logits, whole_text(tiny, tokens[:, :t]))
        logits, cache = step_jit(tiny.params, cache, tokens[:, t], np.ones(B, bool), arch=tiny.arch)
    close(logits, whole_text(tiny, tokens))


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
    again = np.tile(tokens[1, :5], 2)
    close(logits[1], whole_text(tiny, [tokens[0], again, tokens[2, :1]])[1])
    assert after.length.tolist() == [12, 10, 1]


@pytest.mark.parametrize("segment", [256, 5])
def test_a_padded_segment_at_the_edge_of_the_cache(tiny, tokens, segment):
    """Its padding would reach beyond the capacity; a clamped write would shift it onto live keys."""
    before, lengths, more = np.array([10, 12, 11]), np.array([4, 2, 1]), tokens[:, ::-1]
    _, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, S), tokens, before, arch=tiny.arch)
    logits, after = prefill_jit(tiny.params, cache, more, lengths, arch=tiny.arch, segment=segment)
    assert after.length.tolist() == [14, 14, 12]
    texts = [np.concatenate([tokens[row, : before[row]], more[row, : lengths[row]]]) for row in range(B)]
    close(logits, whole_text(tiny, texts))
    # A full row that sits out, or writes where there is no room, loses nothing.
    for live in ([False, False, True], [True, True, True]):
        logits, kept = step_jit(tiny.params, after, tokens[:, 0], np.array(live), arch=tiny.arch)
        assert np.isfinite(logits).all()
        for row in (0, 1):
            assert bits((kept.layers[1].k[row], kept.layers[1].v[row])) == bits(
                (after.layers[1].k[row], after.layers[1].v[row])
            )


def test_bfloat16_is_close_to_float32(tiny, tokens):
    """Within the error of eight bits of mantissa through two layers; a state stays float32."""
    keep = {spec.path for spec in tiny.specs if spec.keep_float32}
    half = {path: x if path in keep else x.astype(jnp.bfloat16) for path, x in tiny.params.items()}
    rounded = {path: x.astype(jnp.float32) for path, x in half.items()}
    expected, _ = prefill_jit(rounded, init_cache(tiny.arch, B, S), tokens, LENGTHS, arch=tiny.arch)
    logits, cache = prefill_jit(half, init_cache(tiny.arch, B, S, jnp.bfloat16), tokens, LENGTHS, arch=tiny.arch)
    assert logits.dtype == jnp.float32
    assert 1e-4 < np.abs(logits - expected).max() < 0.05 * np.abs(expected).max()
    after = step_jit(half, cache, tokens[:, 0], np.ones(B, bool), arch=tiny.arch)[1]
    assert [x.dtype for x in jax.tree.leaves(after)] == [x.dtype for x in jax.tree.leaves(cache)]
    assert cache.layers[1].k.dtype == jnp.bfloat16
    states = [layer.state.dtype for layer in cache.layers if isinstance(layer, DeltaNetCache)]
    assert states == [jnp.float32] * len(states)


def test_a_row_without_any_token_stays_finite(tiny, tokens):
    logits, cache = prefill_jit(tiny.params, init_cache(tiny.arch, B, S), tokens, np.zeros(B, np.int32), arch=tiny.arch)
    assert np.isfinite(logits).all()
    assert bits(cache) == bits(init_cache(tiny.arch, B, S))
