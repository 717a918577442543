"""The estimator as a whole: against the gradient of a quadratic, and against evosax on the same population."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from evosax.algorithms import Open_ES
from evosax.core.fitness_shaping import (
    centered_rank_fitness_shaping_fn,
    identity_fitness_shaping_fn,
    standardize_fitness_shaping_fn,
)

from esopt_jax.core.master import make_master
from esopt_jax.core.perturb import materialize, perturb_population, view_axes
from esopt_jax.core.shaping import shape_fitness
from esopt_jax.core.update import make_update
from esopt_jax.types import LeafSpec

SIGMA = 0.05


@pytest.fixture(scope="module")
def table():
    return (LeafSpec("w", (6, 5), (None, None), 1, "normal", "w"), LeafSpec("b", (4,), (None,), 0, "normal", "b"))


@pytest.fixture(scope="module")
def start():
    rng = np.random.default_rng(0)
    return {
        "w": jnp.asarray(rng.standard_normal((6, 5)), jnp.float32),
        "b": jnp.asarray(rng.standard_normal(4), jnp.float32),
    }


def flat(params):
    return np.concatenate([np.asarray(params[path], np.float64).ravel() for path in sorted(params)])


CURVATURE = np.random.default_rng(1).uniform(0.5, 2, 34)
OPTIMUM = np.random.default_rng(2).standard_normal(34)


def fitness_of(x):
    """A concave quadratic, higher is better; `gradient` is its gradient."""
    return -0.5 * np.sum(CURVATURE * (x - OPTIMUM) ** 2, axis=-1)


def gradient(x):
    return -CURVATURE * (x - OPTIMUM)


def population(table, params, members, generation, **more):
    at = {"specs": table, "sigma": SIGMA, "rank": 2, "dtype": jnp.float32, "plan": "full"} | more
    view = perturb_population(
        0, generation, jnp.arange(members), make_master(params, specs=table, format="float32"), **at
    )
    dense = jax.vmap(lambda v: materialize(v, table), in_axes=(view_axes(view),))(view)
    return np.concatenate([np.asarray(dense[path], np.float64).reshape(members, -1) for path in sorted(dense)], axis=1)


def move(table, params, weights, alpha, generation=0, **more):
    update = make_update(table, **{"population_size": len(weights), "plan": "full", "rank": 2} | more)
    master, _ = update(
        0, generation, make_master(params, specs=table, format="float32"), np.asarray(weights, np.float32), alpha
    )
    return flat(master) - flat(params)


@pytest.mark.parametrize("plan", ["full", "low_rank"])
@pytest.mark.parametrize("antithetic", [False, True])
def test_the_mean_is_the_gradient_within_its_clt_bound(table, start, plan, antithetic):
    """With fitness f, E[(1/N) sum f(theta + sigma eps) eps] = sigma * gradient, exactly, for a quadratic f.

    Each coordinate is a mean over N draws with variance s^2 / N, so none of 34 should be off by more than 5 s /
    sqrt(N); s is estimated from the draws themselves. The gradient is well outside that bound of 0, so the test can
    fail.
    """
    members, how = 16384, {"plan": plan, "antithetic": antithetic}
    x = population(table, start, members, 0, **how)
    centre = fitness_of(flat(start))
    weights = fitness_of(x) - centre  # a constant has mean 0 against eps and would only add variance
    estimate = move(table, start, weights, 1.0, **how) / SIGMA
    terms = weights[:, None] * (x - flat(start)) / SIGMA**2
    if antithetic:
        terms = (terms[0::2] + terms[1::2]) / 2
    bound = 5 * terms.std(axis=0) / np.sqrt(len(terms))
    expected = gradient(flat(start))
    assert (abs(estimate - expected) < bound + 1e-4).all()
    assert np.sum(abs(expected) > bound) > 20
    cosine = estimate @ expected / np.linalg.norm(estimate) / np.linalg.norm(expected)
    assert cosine > 0.95


def test_antithetic_pairs_cancel_the_constant_part_of_the_fitness(table, start):
    weights = np.full(64, 3.0)
    assert move(table, start, weights, 1.0, antithetic=True) == pytest.approx(np.zeros(34), abs=1e-6)
    assert abs(move(table, start, weights, 1.0)).max() > 0.1


# --- evosax: minimises, holds the population as rows, divides by sigma ------------------------------------------------


def evosax_step(mean, rows, fitness, *, alpha, shaping):
    """The one adapter: evosax's own update for our population. It minimises, so the fitness changes sign."""
    es = Open_ES(
        population_size=len(rows),
        solution=jnp.zeros(rows.shape[1]),
        optimizer=optax.sgd(alpha * SIGMA),  # evosax divides by sigma, the paper does not
        std_schedule=optax.constant_schedule(SIGMA),
        fitness_shaping_fn=shaping,
    )
    key = jax.random.key(0)
    state = es.init(key, jnp.asarray(mean, jnp.float32), es.default_params)
    state, _ = es.tell(
        key, jnp.asarray(rows, jnp.float32), jnp.asarray(-fitness, jnp.float32), state, es.default_params
    )
    return np.asarray(es.get_mean(state), np.float64) - mean


@pytest.mark.parametrize(
    ("method", "theirs", "plan", "antithetic"),
    [
        ("none", identity_fitness_shaping_fn, "full", False),
        ("none", identity_fitness_shaping_fn, "low_rank", True),
        ("zscore", standardize_fitness_shaping_fn, "full", False),
        ("centered_rank", centered_rank_fitness_shaping_fn, "full", True),
    ],
)
def test_one_update_equals_that_of_evosax(table, start, method, theirs, plan, antithetic):
    how = {"plan": plan, "antithetic": antithetic}
    rows = population(table, start, 64, 0, **how)
    fitness = fitness_of(rows)
    ours = move(table, start, shape_fitness(fitness, method=method).weights, 0.1, **how)
    if method == "zscore":
        fitness = fitness - fitness.mean()  # same z-scores; theirs computes a variance as E f^2 - (E f)^2 in float32
    expected = evosax_step(flat(start), rows, fitness, alpha=0.1, shaping=theirs)
    assert ours == pytest.approx(expected, abs=2e-5 * abs(expected).max() + 2e-6)
    assert np.linalg.norm(expected) > 1e-2


def test_the_sign_higher_fitness_is_better(table, start):
    rows = population(table, start, 64, 0)
    step = move(table, start, shape_fitness(fitness_of(rows), method="zscore").weights, 0.1)
    assert fitness_of(flat(start) + step) > fitness_of(flat(start))
    assert step @ evosax_step(flat(start), rows, fitness_of(rows), alpha=0.1, shaping=identity_fitness_shaping_fn) > 0


def test_a_quadratic_is_climbed_and_nothing_is_learnt_without_a_signal(table, start):
    def climb(shuffle, alpha=0.3):
        rng, params = np.random.default_rng(0), start
        for generation in range(60):
            fitness = fitness_of(population(table, params, 64, generation))
            fitness = rng.permutation(fitness) if shuffle else fitness
            step = move(table, params, shape_fitness(fitness, method="zscore").weights, alpha, generation)
            moved = flat(params) + step
            params = {"b": jnp.asarray(moved[:4], jnp.float32), "w": jnp.asarray(moved[4:].reshape(6, 5), jnp.float32)}
        return fitness_of(flat(params)) / fitness_of(flat(start))  # share of the distance in fitness that is left

    assert climb(shuffle=False) < 0.05
    assert climb(shuffle=True) > 0.7
