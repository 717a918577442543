"""The baseline compares members on the episodes it may spend, and evaluates the very member that won."""

import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.perturb import Shared, materialize, member_view
from esopt_jax.core.scope import tuned_specs
from esopt_jax.training import best_random
from esopt_jax.training.session import load_parts, open_session
from esopt_jax.types import Trajectory


@pytest.mark.parametrize(
    "variant",
    [
        {"es__antithetic": True},
        {"es__plan": "low_rank", "es__sigma_multipliers": {"matrix": 0.5}},
        {"es__scope": "pattern:mlp"},
    ],
    ids=["antithetic", "low-rank", "scope"],
)
def test_winner_has_the_weights_it_played_with(make_config, variant):
    config = make_config(**variant)
    environment, model = load_parts(config)
    inside = {spec.path for spec in tuned_specs(model.specs, config.es.scope)}
    with open_session(config, environment, model) as session:
        played = session.stage.views(
            np.uint32(config.es.seed), np.uint32(config.es.generations), jnp.arange(8), model.params, np.float32(0.1)
        )
        for member in (2, 5):
            params = best_random.member_policy(session, dict(model.params), member)
            dense = materialize(member_view(played, member), model.specs)
            for path in params:
                np.testing.assert_allclose(params[path], dense[path], atol=1e-6, err_msg=path)
                assert jnp.array_equal(params[path], model.params[path]) == (path not in inside)
        assert {path for path, leaf in played.items() if not isinstance(leaf, Shared)} == inside


@pytest.fixture
def rounds_played(monkeypatch):
    """Replace the rollouts by members with the given fitness in each round; returns what was asked for."""
    asked = []
    table = np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])

    def rollout(stage, master, cases, **how):
        asked.append((cases, how))
        rewards = table[len(asked) % 2]
        return [
            [Trajectory(0, m, c, "t", 0, (), "failure", float(rewards[m % 4]), 0.0) for c, _ in cases]
            for m in how["members"]
        ]

    monkeypatch.setattr(best_random, "rollout_population", rollout)
    return asked


def test_a_tenth_of_the_training_episodes_on_new_cases_with_noise_of_its_own(make_config, rounds_played, monkeypatch):
    config = make_config(es__generations=30)
    monkeypatch.setattr(best_random, "member_policy", lambda session, base, member: member)
    monkeypatch.setattr(best_random, "evaluate_view", lambda session, view, sampling: (view, sampling))
    environment, model = load_parts(config)
    with open_session(config, environment, model) as session:
        assert best_random.best_random(session, model.params) == 3
    assert len(rounds_played) == 3
    assert {how["generation"] for _, how in rounds_played} == {30}
    assert {how["sigma"] for _, how in rounds_played} == {config.es.sigma}
    played = [tuple(case for case, _ in cases) for cases, _ in rounds_played]
    assert len(set(played)) == 3 and not set(played[0]) & set(played[1])
