"""The sampler against closed forms and NumPy; every assertion about distributions has a stated error rate."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.config import RolloutConfig
from esopt_jax.rollouts.sampler import (
    Counts,
    argmax,
    gumbel,
    keep_min_p,
    keep_top_p,
    make_sampling,
    penalise,
    sample,
    sampling_flags,
)

V = 40
DRAWS = 20_000
LOGITS = np.random.default_rng(0).normal(size=V).astype(np.float32) * 2


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max())
    return e / e.sum()


def draw(logits: np.ndarray, *, n: int = DRAWS, seed: int = 0, limit: int = V, **config: object) -> np.ndarray:
    """`n` independent tokens from the same logits."""
    keys = jax.random.split(jax.random.key(seed), n)
    rows = jnp.broadcast_to(jnp.asarray(logits), (n, len(logits)))
    sampling = make_sampling(RolloutConfig(**config))
    return np.asarray(run(keys, rows, jnp.zeros(n, jnp.int32), sampling, limit=limit))


@partial(jax.jit, static_argnames="limit")
def run(keys, logits, position, sampling, limit=V, counts=None):
    return sample(keys, logits, position, sampling, vocab_limit=limit, counts=counts)


def assert_distribution(tokens: np.ndarray, probability: np.ndarray) -> None:
    """Chi-square over tokens with an expected count of at least 5, at 6 standard deviations; none off the support."""
    count = np.bincount(tokens, minlength=len(probability))
    assert count[probability == 0].sum() == 0
    expected = probability * len(tokens)
    big = expected >= 5
    observed, wanted = np.append(count[big], count[~big].sum()), np.append(expected[big], expected[~big].sum())
    keep = wanted > 0
    chi2 = ((observed - wanted)[keep] ** 2 / wanted[keep]).sum()
    freedom = keep.sum() - 1
    assert chi2 < freedom + 6 * np.sqrt(2 * freedom) + 10


# --- distributions ----------------------------------------------------------------------------------------------------


def test_tokens_follow_the_softmax_at_any_temperature():
    assert_distribution(draw(LOGITS), softmax(LOGITS))
    assert_distribution(draw(LOGITS, temperature=0.5), softmax(LOGITS / 0.5))
    with pytest.raises(AssertionError):  # the test can tell a temperature of 1 from 0.9
        assert_distribution(draw(LOGITS, temperature=0.9), softmax(LOGITS))


@pytest.mark.parametrize("rule", ["top_k", "top_p", "min_p", "all", "top_k+top_p"])
def test_filters_renormalise_over_exactly_their_support(rule):
    p = softmax(LOGITS / 0.7)
    order = np.argsort(-p, kind="stable")
    config = {"temperature": 0.7}
    keep = np.ones(V, bool)
    if rule in ("min_p", "all"):
        config["min_p"] = 0.02
        keep &= p >= 0.02 * p.max()
    if rule in ("top_k", "all", "top_k+top_p"):
        config["top_k"] = 9
        keep &= np.isin(np.arange(V), order[:9])
    if rule in ("top_p", "all", "top_k+top_p"):
        config["top_p"] = 0.8
        q = np.where(keep, p, 0) / p[keep].sum()  # top-p comes last, over what the others left
        before = np.array([q[q > x].sum() for x in q])
        keep &= before < 0.8
    expected = np.where(keep, p, 0) / p[keep].sum()
    assert 2 <= keep.sum() < V
    assert_distribution(draw(LOGITS, **config), expected)


def test_top_p_keeps_the_token_that_crosses_and_those_equal_to_it():
    scores = jnp.log(jnp.array([0.5, 0.2, 0.2, 0.1]))
    kept = {
        p: np.isfinite(np.asarray(keep_top_p(scores, jnp.float32(p)))).tolist() for p in (0.4, 0.6, 0.75, 0.95, 1.0)
    }
    assert kept == {
        0.4: [True, False, False, False],
        0.6: [True, True, True, False],
        0.75: [True, True, True, False],
        0.95: [True] * 4,
        1.0: [True] * 4,
    }


def test_top_p_1_keeps_tails_that_rounding_would_lose():
    scores = jnp.concatenate([jnp.zeros(3), jnp.full(2, -80.0)])
    assert np.isfinite(np.asarray(keep_top_p(scores, jnp.float32(1.0)))).all()
    assert np.isfinite(np.asarray(keep_top_p(scores, jnp.float32(0.999)))).tolist() == [True] * 3 + [False] * 2


def test_min_p_is_relative_to_the_largest_probability():
    scores = jnp.log(jnp.array([0.6, 0.29, 0.11]))
    assert np.isfinite(np.asarray(keep_min_p(scores, jnp.float32(0.2)))).tolist() == [True, True, False]
    assert np.isfinite(np.asarray(keep_min_p(scores, jnp.float32(0.0)))).all()


def test_gumbel_values_have_the_right_law_and_distinct_tails():
    x = np.sort(np.asarray(gumbel(jax.random.bits(jax.random.key(0), (200_000,)))).astype(np.float64))
    cdf = np.exp(-np.exp(-x))
    assert np.abs(cdf - (np.arange(len(x)) + 0.5) / len(x)).max() < 2.0 / np.sqrt(len(x))  # Kolmogorov, p about 1e-3
    edges = np.asarray(gumbel(jnp.array([0, 1, 2, 2**32 - 1], jnp.uint32)))
    assert np.isfinite(edges).all()
    assert edges[0] > 22
    assert edges[0] > edges[1] > edges[2] > edges[3]


# --- greedy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [{}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}])
def test_temperature_0_is_argmax_with_ties_to_the_lowest_id(extra):
    logits = np.random.default_rng(1).integers(-3, 4, (500, V)).astype(np.float32)  # full of ties
    keys = jax.random.split(jax.random.key(0), 500)
    sampling = make_sampling(RolloutConfig(temperature=0, **extra))
    tokens = run(keys, jnp.asarray(logits), jnp.zeros(500, jnp.int32), sampling)
    np.testing.assert_array_equal(tokens, logits.argmax(-1))


def test_small_temperatures_approach_greedy():
    assert (draw(LOGITS, temperature=1e-3) == LOGITS.argmax()).all()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 128, 1000])
def test_two_level_argmax_equals_numpy(size):
    x = np.random.default_rng(size).integers(-5, 5, (3, 50, size)).astype(np.float32)
    x[0, :10] = -np.inf
    np.testing.assert_array_equal(argmax(jnp.asarray(x)), x.argmax(-1))


def test_one_program_serves_several_samplings():
    configs = [
        RolloutConfig(temperature=1.0),
        RolloutConfig(temperature=0.7, top_p=0.8),
        RolloutConfig(temperature=0.0),
    ]
    flags = sampling_flags(*configs)
    logits = jnp.asarray(np.random.default_rng(2).normal(size=(300, V)).astype(np.float32))
    keys = jax.random.split(jax.random.key(0), 300)
    position = jnp.zeros(300, jnp.int32)
    traced = []

    @jax.jit
    def shared(sampling):
        traced.append(sampling)
        return sample(keys, logits, position, sampling, vocab_limit=V)

    for config in configs:
        alone = run(keys, logits, position, make_sampling(config))
        np.testing.assert_array_equal(shared(make_sampling(config, flags=flags)), alone)
    assert len(traced) == 1
    with pytest.raises(ValueError, match="top_k"):
        sampling_flags(RolloutConfig(top_k=5), RolloutConfig())


# --- noise ------------------------------------------------------------------------------------------------------------


def test_noise_is_that_of_jax_random_bits_and_ignores_filters():
    keys = jax.random.split(jax.random.key(7), 64)
    logits = np.random.default_rng(3).normal(size=(64, V)).astype(np.float32)
    position = np.arange(64, dtype=np.int32)
    bits = jax.vmap(lambda k, t: jax.random.bits(jax.random.fold_in(k, t), (V,)))(keys, position)
    noise = np.asarray(gumbel(bits))
    plain = run(keys, jnp.asarray(logits), position, make_sampling(RolloutConfig()))
    np.testing.assert_array_equal(plain, (logits + noise).argmax(-1))
    top = np.argsort(-logits, axis=-1, kind="stable")[:, :6]
    allowed = np.full_like(logits, -np.inf)
    np.put_along_axis(allowed, top, np.take_along_axis(logits, top, -1), -1)
    filtered = run(keys, jnp.asarray(logits), position, make_sampling(RolloutConfig(top_k=6)))
    np.testing.assert_array_equal(filtered, (allowed + noise).argmax(-1))


def test_a_rows_token_does_not_depend_on_other_rows():
    keys = jax.random.split(jax.random.key(1), 12)
    logits = jnp.asarray(np.random.default_rng(4).normal(size=(12, V)).astype(np.float32))
    position = jnp.arange(12, dtype=jnp.int32)
    sampling = make_sampling(RolloutConfig(top_p=0.9))
    whole = run(keys, logits, position, sampling)
    np.testing.assert_array_equal(run(keys[3:5], logits[3:5], position[3:5], sampling), whole[3:5])
    other = logits.at[5:].set(0.0)
    np.testing.assert_array_equal(run(keys, other, position, sampling)[:5], whole[:5])


def test_ids_beyond_the_vocabulary_and_numbers_that_are_not_are_never_chosen():
    logits = np.zeros(V, np.float32)
    logits[30:] = 50
    logits[3], logits[4] = np.nan, np.inf
    tokens = draw(logits, n=2000, limit=30)
    assert set(tokens) == set(range(30)) - {3, 4}
    assert (draw(np.full(V, np.nan, np.float32), n=8, top_p=0.9, min_p=0.1) == 0).all()


# --- penalties --------------------------------------------------------------------------------------------------------

PROMPT = [1, 2, 2, 5]
REPLY = [5, 7, 7, 7]


def oracle(logits, *, presence=0.0, frequency=0.0, repetition=1.0, scope="generated"):
    """Token by token, as the OpenAI and vLLM documents define it."""
    out = logits.astype(np.float64).copy()
    for token in range(len(logits)):
        if token in PROMPT or token in REPLY:
            out[token] = out[token] / repetition if out[token] > 0 else out[token] * repetition
        out[token] -= frequency * REPLY.count(token)
        said = token in REPLY or (scope == "all" and token in PROMPT)
        out[token] -= presence * said
    return out


@pytest.mark.parametrize(
    "config",
    [
        {"presence_penalty": 1.5},
        {"presence_penalty": 1.5, "presence_penalty_scope": "all"},
        {"frequency_penalty": 0.3},
        {"repetition_penalty": 1.7},
        {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.3},
    ],
)
def test_penalties_equal_a_token_by_token_oracle(config):
    counts = Counts(
        generated=jnp.asarray(np.bincount(REPLY, minlength=V), jnp.int32),
        prompt=jnp.asarray(np.isin(np.arange(V), PROMPT)),
    )
    sampling = make_sampling(RolloutConfig(**config))
    assert sampling.flags.penalties
    names = {"presence_penalty": "presence", "frequency_penalty": "frequency", "repetition_penalty": "repetition"}
    expected = oracle(
        LOGITS,
        **{names[k]: v for k, v in config.items() if k in names},
        scope=config.get("presence_penalty_scope", "generated"),
    )
    np.testing.assert_allclose(penalise(jnp.asarray(LOGITS), counts, sampling), expected, atol=1e-6)
    n = DRAWS
    spread = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, V)), counts)
    keys = jax.random.split(jax.random.key(0), n)
    tokens = run(keys, jnp.broadcast_to(LOGITS, (n, V)), jnp.zeros(n, jnp.int32), sampling, counts=spread)
    assert_distribution(np.asarray(tokens), softmax(expected))


def test_penalties_apply_before_temperature_and_to_greedy():
    logits = np.zeros(V, np.float32)
    logits[7], logits[8] = 1.0, 0.5
    counts = Counts(
        generated=jnp.asarray(np.bincount(REPLY, minlength=V), jnp.int32)[None], prompt=jnp.zeros((1, V), bool)
    )
    sampling = make_sampling(RolloutConfig(temperature=0, presence_penalty=0.7))
    token = run(
        jax.random.split(jax.random.key(0), 1),
        jnp.asarray(logits)[None],
        jnp.zeros(1, jnp.int32),
        sampling,
        counts=counts,
    )
    assert int(token[0]) == 8
