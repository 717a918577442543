"""The loss against closed forms and finite differences, and its log-probabilities against the sampler itself."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.config import RolloutConfig
from esopt_jax.rollouts.sampler import Counts, make_sampling, sample
from esopt_jax.training.baselines.grpo_loss import (
    IMPOSSIBLE,
    TokenLogProbs,
    group_advantages,
    k3,
    reply_counts,
    token_log_probs,
    token_losses,
    token_weights,
)

V = 12
LOGITS = np.random.default_rng(0).normal(size=V).astype(np.float32) * 2
SAMPLINGS = {
    "plain": {},
    "cold": {"temperature": 0.7},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.1},
    "all": {"temperature": 0.7, "top_k": 8, "top_p": 0.8, "min_p": 0.05},
    "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.3},
    "published": {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "presence_penalty": 1.5},
    "prompt too": {"presence_penalty": 1.5, "presence_penalty_scope": "all"},
}
COUNTS = Counts(generated=jnp.arange(V) % 3, prompt=jnp.arange(V) % 4 == 0)


def log_probs(logits, config, form="sampled"):
    """Of every token of the vocabulary."""
    sampling = make_sampling(RolloutConfig(**config))
    rows = jnp.broadcast_to(logits, (V, V))
    counts = jax.tree.map(lambda x: jnp.broadcast_to(x, (V, V)), COUNTS) if sampling.flags.penalties else None
    return token_log_probs(rows, jnp.arange(V), sampling, vocab_limit=V - 1, counts=counts, form=form)


@pytest.mark.parametrize("config", SAMPLINGS.values(), ids=SAMPLINGS)
def test_log_probabilities_are_those_of_what_the_sampler_draws(config):
    """Chi-square at 6 standard deviations, and no token that has none."""
    n, sampling = 20_000, make_sampling(RolloutConfig(**config))
    rows = jnp.broadcast_to(LOGITS, (n, V))
    counts = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, V)), COUNTS) if sampling.flags.penalties else None
    keys = jax.random.split(jax.random.key(1), n)
    drawn = sample(keys, rows, jnp.zeros(n, jnp.int32), sampling, vocab_limit=V - 1, counts=counts)
    probability = np.exp(np.asarray(log_probs(LOGITS, config).drawn, np.float64))
    assert probability.sum() == pytest.approx(1, abs=1e-5)
    count, wanted = np.bincount(drawn, minlength=V), probability * n
    assert count[probability == 0].sum() == 0 and probability[V - 1] == 0
    chi2 = ((count - wanted)[wanted > 0] ** 2 / wanted[wanted > 0]).sum()
    freedom = (wanted > 0).sum() - 1
    assert chi2 < freedom + 6 * np.sqrt(2 * freedom) + 10


@pytest.mark.parametrize("config", SAMPLINGS.values(), ids=SAMPLINGS)
def test_open_log_probabilities_know_temperature_and_penalties_but_no_filter(config):
    kept = {name: value for name, value in config.items() if name not in ("top_k", "top_p", "min_p")}
    found, wanted = log_probs(LOGITS, config).open, log_probs(LOGITS, kept)
    np.testing.assert_allclose(found, wanted.drawn, rtol=1e-6)
    assert (found[: V - 1] > IMPOSSIBLE).all()


def test_the_raw_form_looks_at_nothing_but_the_logits():
    found = log_probs(LOGITS, SAMPLINGS["published"], form="raw")
    np.testing.assert_allclose(found.drawn, jax.nn.log_softmax(jnp.asarray(LOGITS)), rtol=1e-6)
    np.testing.assert_array_equal(found.drawn, found.open)


@pytest.mark.parametrize("config", SAMPLINGS.values(), ids=SAMPLINGS)
def test_gradient_equals_finite_differences(config):
    """Of the whole loss, in the logits; the old policy is near enough for some tokens to be clipped."""
    chooser, flat = np.random.default_rng(3), LOGITS / 2
    old = log_probs(flat + 0.3 * chooser.normal(size=V).astype(np.float32), config).drawn
    reference = log_probs(LOGITS, config).open
    advantages = jnp.asarray(chooser.normal(size=V).astype(np.float32))
    inside = (log_probs(flat, config).drawn > IMPOSSIBLE) & (old > IMPOSSIBLE) & (jnp.arange(V) < V - 1)

    def loss(logits):
        new = log_probs(logits, config)
        each = token_losses(new, old, reference, advantages, clip_low=0.2, clip_high=0.28, beta=0.1)
        return jnp.where(inside, each.loss, 0.0).sum()

    gradient = jax.grad(loss)(jnp.asarray(flat))
    assert np.isfinite(gradient).all()
    h = 1e-3
    numeric = [float(loss(flat + h * row) - loss(flat - h * row)) / (2 * h) for row in np.eye(V, dtype=np.float32)]
    np.testing.assert_allclose(gradient, numeric, atol=5e-3)
    assert np.abs(gradient).max() > 0.05


def test_a_token_that_a_filter_removes_has_no_gradient():
    least = int(np.argmin(LOGITS[: V - 1]))
    gradient = jax.grad(lambda x: log_probs(x, {"top_k": 3}).drawn[least])(jnp.asarray(LOGITS))
    np.testing.assert_array_equal(gradient, 0)


def test_divergence_of_identical_policies_is_0_with_no_gradient():
    x = jnp.asarray(LOGITS)
    assert not k3(x, x).any()
    np.testing.assert_array_equal(jax.vmap(jax.grad(k3))(x, x), 0)


def test_divergence_estimates_kullback_leibler():
    new, reference = (jax.nn.log_softmax(jnp.asarray(x)) for x in (LOGITS, 0.5 * LOGITS))
    exact = float(jnp.sum(jnp.exp(new) * (new - reference)))
    assert float(jnp.sum(jnp.exp(new) * k3(new, reference))) == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.5, 1.0, -1.28, 1),
        (1.5, -1.0, 1.5, 0),
        (0.5, 1.0, -0.5, 0),
        (0.5, -1.0, 0.8, 1),
        (1.1, 2.0, -2.2, 0),
        (1.0, 0.0, 0.0, 0),
    ],
)
def test_clip_is_pessimistic_and_asymmetric(ratio, advantage, loss, clipped):
    new = jnp.log(jnp.float32(ratio))
    found = token_losses(
        TokenLogProbs(new, new), jnp.float32(0), None, jnp.float32(advantage), clip_low=0.2, clip_high=0.28, beta=0.0
    )
    assert float(found.loss) == pytest.approx(loss, rel=1e-5) and float(found.clipped) == clipped


def test_on_policy_gradient_is_the_policy_gradient():
    """With ratio 1 the gradient is that of -A log p: ties of the two ratios lose nothing."""
    x = jnp.asarray(LOGITS)

    def surrogate(logits):
        new = log_probs(logits, {})
        old = jax.lax.stop_gradient(new.drawn)
        return token_losses(new, old, None, jnp.float32(0.7), clip_low=0.2, clip_high=0.28, beta=0.0).loss[3]

    wanted = jax.grad(lambda logits: -0.7 * log_probs(logits, {}).drawn[3])(x)
    np.testing.assert_allclose(jax.grad(surrogate)(x), wanted, rtol=1e-5)


@pytest.mark.parametrize("scaled", [True, False])
def test_advantages_are_centred_in_their_group_and_a_fault_counts_for_nothing(scaled):
    returns = np.array([[0.0, 1.0, 1.0, np.nan], [0.25, 0.25, 0.25, 0.25], [np.nan] * 4, [2.0, np.nan, np.nan, np.nan]])
    found = group_advantages(returns, scaled=scaled)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-6)
    np.testing.assert_array_equal(found[1:], 0)
    wanted = np.array([-2, 1, 1]) / 3
    np.testing.assert_allclose(found[0], [*(wanted / wanted.std() if scaled else wanted), 0], rtol=1e-6)


@pytest.mark.parametrize("average", ["sequence", "token"])
def test_weights_of_all_tokens_sum_to_1(average):
    lengths = np.array([1, 5, 2])
    assert (token_weights(lengths, average=average) * lengths).sum() == pytest.approx(1)


def test_counts_are_those_of_the_reply_so_far_and_of_all_before_it():
    tokens = jnp.array([3, 3, 5, 1, 1, 5, 2])
    found = reply_counts(tokens, jnp.array([2, 2, 5]), jnp.array([2, 5, 6]), size=V)
    assert [np.flatnonzero(row).tolist() for row in found.prompt] == [[3], [3], [1, 3, 5]]
    assert [dict(zip(np.flatnonzero(r).tolist(), r[r > 0].tolist(), strict=True)) for r in found.generated] == [
        {},
        {1: 2, 5: 1},
        {5: 1},
    ]


def test_functions_compile():
    find = jax.jit(partial(token_log_probs, vocab_limit=V), static_argnames="form")
    sampling = make_sampling(RolloutConfig(top_k=3, top_p=0.9))
    assert find(jnp.zeros((2, 3, V)), jnp.zeros((2, 3), jnp.int32), sampling).drawn.shape == (2, 3)
