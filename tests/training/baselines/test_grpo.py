"""GRPO on the tiny agent: it learns when rewards mean something, and its gradient is that of what was played."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.models.registry import decode_step, init_cache, prefill, score
from esopt_jax.rollouts.keys import Slots, row_keys
from esopt_jax.rollouts.sampler import make_sampling, sample
from esopt_jax.training.baselines.grpo_batch import conversations, make_batches
from esopt_jax.training.baselines.grpo_learner import make_learner
from esopt_jax.training.baselines.grpo_loss import reply_counts, token_log_probs
from esopt_jax.training.baselines.grpo_step import Student, learn, play_groups
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.restore import base_master, base_model
from esopt_jax.training.session import load_parts, open_session

SETTINGS = {
    "method": "grpo",
    "grpo__group_size": 8,
    "grpo__lr": 1e-2,
    "grpo__beta": 0.01,
    "grpo__micro_batch": 16,
}


@pytest.fixture(scope="module")
def played(make_config):
    """A session, its weights, and what they played in a step; penalties and filters included."""

    def play(**overrides):
        config = make_config(**{**SETTINGS, **overrides})
        environment, model = load_parts(config)
        with open_session(config, environment, model) as session:
            weights = base_master(model, config.es)
            return session, weights, play_groups(session, weights, 0)

    return play


def fresh(session):
    config = session.config
    return base_master(base_model(config.model.path, config.es), config.es)


def moved(session, groups, **overrides):
    """Weights after learning from `groups` once, and the metrics."""
    config = dataclasses.replace(session.config, grpo=dataclasses.replace(session.config.grpo, **overrides))
    learner = make_learner(config, session.model)
    weights = fresh(session)
    student, row = learn(
        Student(weights, learner.init(weights)),
        groups,
        0,
        config=config,
        learner=learner,
        base=fresh(session) if config.grpo.beta else None,
        capacity=session.stage.engine.spec.capacity,
    )
    return student.weights, row


def test_rewards_are_learned(make_config, tmp_path):
    config = make_config(**SETTINGS, es__generations=15, eval__repeats=8, eval__rows=16, log__trajectories="none")
    run = train(config, tmp_path / "run")
    assert run.summary["method"] == "grpo" and run.summary["population_size"] == 8
    assert run.summary["gain"]["ci95"][0] > 0.3
    assert run.summary["train_episodes"] == 15 * 8 * 8


BANDIT = """
from esopt_jax.types import Observation, Step, Task


class Bandit:
    \"\"\"Ten arms, pulled by a digit: the reward is a coin's, whose bias is the digit's; nothing else counts.\"\"\"

    def tasks(self, split):
        return [Task(f"{split}-{i}", i) for i in range(16)]

    def reset(self, task, seed):
        return seed, Observation(({"role": "user", "content": "?"},))

    def step(self, state, action):
        bias = 0.9 if action[:1] == "7" else 0.3 if action[:1].isdigit() else 0.0
        won = (state * 2654435761 % 2**32) / 2**32 < bias
        return Step(state, None, float(won), True, {})
"""


def test_the_best_arm_of_a_bandit_is_found(make_config, tmp_path):
    file = tmp_path / "bandit.py"
    file.write_text(BANDIT)
    settings = {**SETTINGS, "env__name": f"{file}:Bandit", "rollout__max_new_tokens": 1, "grpo__group_size": 16}
    run = train(make_config(**settings, es__generations=25, log__trajectories="all"), tmp_path / "run")
    pulled = [[episode.turns[0].text for episode in run.episodes(step)] for step in (0, 24)]
    assert pulled[0].count("7") / len(pulled[0]) < 0.2 and pulled[1].count("7") / len(pulled[1]) > 0.6


def test_shuffled_rewards_are_not(make_config, tmp_path):
    config = make_config(**SETTINGS, es__generations=15, eval__repeats=8, eval__rows=16, es__control="shuffled_rewards")
    assert train(config, tmp_path / "run").summary["gain"]["mean"] < 0.25


def test_zero_update_leaves_every_bit(make_config, tmp_path):
    summary = train(make_config(**SETTINGS, es__control="zero_update"), tmp_path / "run").summary
    rows = read(tmp_path / "run" / "history.jsonl")
    assert summary["digest"] == rows[0]["base_digest"] and summary["final"] == summary["base"]
    assert summary["updates_skipped"] == 2


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"rollout__temperature": 0.7, "rollout__top_k": 20, "rollout__top_p": 0.8, "rollout__presence_penalty": 1.5},
        {"rollout__presence_penalty": 1.5, "rollout__presence_penalty_scope": "all", "rollout__max_new_tokens": 4},
    ],
    ids=["plain", "published", "prompt too"],
)
def test_a_fresh_batch_has_ratio_1(played, sampling):
    """The log-probabilities of the whole conversation at once are those of the prompts and tokens one after another."""
    session, weights, groups = played(**sampling)
    learner, spec = make_learner(session.config, session.model), session.stage.engine.spec
    chosen = [one for episode in groups.episodes for one in conversations(episode, 1.0)]
    (batch, *_) = make_batches(chosen, size=len(chosen), capacity=spec.capacity, average="token", idle=True)
    found = np.asarray(learner.log_probs(weights, batch).drawn)
    one_by_one, mine = _one_by_one(session, weights, batch), batch.weights[:, 1:] > 0
    assert (found[mine] > -50).all()  # nothing was drawn that could not be
    np.testing.assert_allclose(np.exp((found - one_by_one)[mine]), 1, atol=2e-5)


def _one_by_one(session, weights, batch):
    """Log-probabilities as the decode loop sees the logits: a prompt, then token after token."""
    arch, (rows, width) = session.model.arch, batch.tokens.shape
    sampling = make_sampling(session.config.rollout)
    step = jax.jit(partial(decode_step, arch=arch))
    cache = init_cache(arch, rows, width)
    logits, cache = jax.jit(partial(prefill, arch=arch))(
        weights, cache, jnp.asarray(batch.tokens[:, :1]), jnp.ones(rows, jnp.int32)
    )
    found = []
    for position in range(1, width):
        counts = None
        if sampling.flags.penalties:
            each = jax.vmap(partial(reply_counts, size=logits.shape[-1]))
            counts = each(batch.tokens, batch.starts[:, position : position + 1], jnp.full((rows, 1), position))
            counts = jax.tree.map(lambda x: x[:, 0], counts)
        token = jnp.asarray(batch.tokens[:, position])
        found.append(
            token_log_probs(logits, token, sampling, vocab_limit=session.model.vocab_limit, counts=counts).drawn
        )
        logits, cache = step(weights, cache, token, jnp.ones(rows, bool))
    return np.stack(found, axis=1)


TALK = """
from esopt_jax.types import Observation, Step, Task


class Talk:
    \"\"\"Three turns of one conversation that grows.\"\"\"

    def tasks(self, split):
        return [Task(f"{split}-{i}", "abcdefgh"[i % 8]) for i in range(16)]

    def reset(self, task, seed):
        return 0, self._say(task.data)

    def step(self, state, action):
        return Step(state + 1, None if state == 2 else self._say("?!"), float(action[:1] == "7"), state == 2, {})

    def _say(self, text):
        return Observation(({"role": "user", "content": text},), mode="append")
"""


@pytest.mark.parametrize("scope", ["generated", "all"])
def test_the_sampler_draws_the_same_tokens_again_from_what_is_learned_from(played, tmp_path, scope):
    """Conversation, place in the reply and counts of the penalties are those that every token was drawn with."""
    file = tmp_path / "talk.py"
    file.write_text(TALK)
    session, weights, groups = played(
        env__name=f"{file}:Talk",
        rollout__max_prompt_tokens=48,
        rollout__max_new_tokens=4,
        rollout__presence_penalty_scope=scope,
        rollout__top_p=0.9,
        rollout__presence_penalty=1.5,
        rollout__frequency_penalty=0.7,
        rollout__repetition_penalty=1.3,
    )
    arch, config = session.model.arch, session.config
    sampling, width = make_sampling(config.rollout), session.stage.engine.spec.capacity
    read, drawn = jax.jit(partial(score, arch=arch)), 0
    for episode in groups.episodes[:12]:
        (one,) = conversations(episode, 1.0)
        assert len(one.replies) == len(episode.turns) == 3
        tokens = jnp.zeros(width, jnp.int32).at[: len(one.tokens)].set(jnp.array(one.tokens))
        logits = read(weights, tokens[None], jnp.array([len(one.tokens)]))[0]
        for turn, (first, end) in enumerate(one.replies):
            places = jnp.arange(first, end)
            slots = Slots(*(jnp.full(end - first, x) for x in (-1, episode.case, episode.episode, turn)))
            keys = row_keys(config.es.seed, 0, slots, common_random_numbers=config.rollout.common_random_numbers)
            counts = reply_counts(tokens, jnp.full_like(places, first), places, size=arch.vocab_size)
            limit = session.model.vocab_limit
            found = sample(keys, logits[places - 1], places - first, sampling, vocab_limit=limit, counts=counts)
            assert found.tolist() == list(one.tokens[first:end]) == list(episode.turns[turn].completion_ids)
            drawn += end - first
    assert drawn > 60


def test_replies_are_learned_as_they_were_drawn(played):
    _, _, groups = played()
    episode = groups.episodes[0]
    found = conversations(episode, 0.5)
    assert len(found) == len(episode.turns) == 2
    for one, turn in zip(found, episode.turns, strict=True):
        ((first, end),) = one.replies
        assert one.tokens[:first] == turn.prompt_ids and one.tokens[first:end] == turn.completion_ids


@pytest.mark.parametrize("average", ["sequence", "token"])
def test_micro_batches_give_the_gradient_of_the_whole(played, average):
    session, _, groups = played()
    gradients = [_gradient(session, groups, size, average) for size in (5, 128)]
    for path in gradients[0]:
        scale = np.abs(gradients[1][path]).max()
        np.testing.assert_allclose(*(g[path] for g in gradients), atol=1e-6 + 1e-5 * scale, err_msg=path)
    assert max(np.abs(leaf).max() for leaf in gradients[0].values()) > 1e-3


def _gradient(session, groups, size, average):
    learner, weights = make_learner(session.config, session.model), fresh(session)
    pairs = zip(groups.episodes, groups.advantages.reshape(-1).tolist(), strict=True)
    chosen = [one for episode, advantage in pairs for one in conversations(episode, advantage)]
    capacity = session.stage.engine.spec.capacity
    gradients = {path: jnp.zeros_like(weights[path]) for path in sorted(learner.tuned)}
    for batch in make_batches(chosen, size=size, capacity=capacity, average=average, idle=True):
        reference = learner.log_probs(weights, batch).open
        gradients, _ = learner.gradient(weights, gradients, batch, None, reference)
    return jax.device_get(gradients)


def test_leaving_out_idle_conversations_changes_nothing(played):
    session, _, groups = played(grpo__beta=0.0)
    one, other = (_weights(moved(session, groups, micro_batch=size)[0]) for size in (4, 64))
    for path in one:
        np.testing.assert_allclose(one[path], other[path], atol=2e-4, err_msg=path)


def test_groups_without_spread_give_no_gradient(played):
    session, _, groups = played()
    flat = dataclasses.replace(groups, returns=groups.returns * 0, advantages=groups.advantages * 0)
    found, row = moved(session, flat)
    assert row["update/skipped"] == 1 and row["grpo/optimizer_steps"] == 0
    for path, leaf in fresh(session).items():
        np.testing.assert_array_equal(found[path], leaf)


def test_the_first_step_is_on_policy_and_has_no_divergence(played):
    session, _, groups = played()
    _, row = moved(session, groups)
    assert row["grpo/kl"] == pytest.approx(0, abs=1e-9) and row["grpo/clip_fraction"] == 0
    assert row["grpo/ratio_off"] == 0 and row["grpo/grad_norm"] > 0
    _, later = moved(session, groups, batches=4, lr=0.02)
    assert later["grpo/optimizer_steps"] == 4 and later["grpo/ratio_off"] > 1e-3 and later["grpo/kl"] > 0


def test_steps_are_those_of_optax_adamw(played):
    import optax

    session, _, groups = played()
    grpo, start = session.config.grpo, fresh(session)
    gradients = _gradient(session, groups, 128, grpo.average)
    optimizer = optax.chain(
        optax.clip_by_global_norm(grpo.max_norm), optax.adamw(grpo.lr, weight_decay=grpo.weight_decay)
    )
    steps, _ = optimizer.update(gradients, optimizer.init(gradients), {path: start[path] for path in gradients})
    found, _ = moved(session, groups, micro_batch=128)
    for path in gradients:
        np.testing.assert_allclose(found[path], start[path] + steps[path], atol=1e-6, err_msg=path)


def test_only_the_scope_learns(played):
    session, weights, groups = played(es__scope="pattern:mlp")
    found, _ = moved(session, groups)
    for path, leaf in weights.items():
        assert bool((found[path] != leaf).any()) == ("mlp" in path), path


def _weights(tree):
    return {path: np.asarray(leaf) for path, leaf in tree.items()}
