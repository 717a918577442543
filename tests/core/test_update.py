import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.digest import digest
from esopt_jax.core.master import make_master, master_value
from esopt_jax.core.noise import noise_key, sample_factors, sample_noise
from esopt_jax.core.update import make_update
from esopt_jax.errors import EsoptError

P, RANK, ALPHA = 6, 2, 0.03
WEIGHTS = np.array([0.7, -1.3, 0.2, 1.1, -0.4, -0.3], np.float32)


def dense_noise(spec, plan, draw):
    key = noise_key(1, 2, draw)
    if plan == "low_rank" and spec.is_matrix:
        left, right = (np.asarray(x, np.float64) for x in sample_factors(key, spec, rank=RANK))
        return (left.T @ right / np.sqrt(RANK)).reshape(spec.shape)
    return np.asarray(sample_noise(key, spec), np.float64)


def updater(specs, **more):
    return make_update(specs, **{"population_size": P, "plan": "full", "rank": RANK} | more)


def values(master):
    return {path: np.asarray(master_value(leaf)) for path, leaf in master.items()}


@pytest.mark.parametrize("plan", ["full", "low_rank"])
@pytest.mark.parametrize("antithetic", [False, True])
def test_equals_the_sum_over_members_in_float64(specs, params, plan, antithetic):
    weights = np.concatenate([WEIGHTS, WEIGHTS[::-1] * 2]) if antithetic else WEIGHTS
    members = len(weights)
    how = {"population_size": members, "plan": plan, "antithetic": antithetic, "multipliers": {"conv": 0.5}}
    master, stats = updater(specs, **how)(1, 2, make_master(params, specs=specs, format="float32"), weights, ALPHA)
    square = 0.0
    for spec in specs:
        draws = [m // 2 for m in range(members)] if antithetic else range(members)
        signs = [1, -1] * (members // 2) if antithetic else [1] * members
        total = sum(float(w) * s * dense_noise(spec, plan, d) for w, s, d in zip(weights, signs, draws, strict=True))
        step = ALPHA / members * (0.5 if spec.group == "conv" else 1.0) * total
        assert np.asarray(master[spec.path]) == pytest.approx(
            np.asarray(params[spec.path], np.float64) + step, abs=2e-7
        )
        square += np.sum(step**2)
    assert float(stats.update_norm) == pytest.approx(np.sqrt(square), rel=1e-5)
    assert float(stats.applied_norm) == pytest.approx(np.sqrt(square), rel=1e-3)
    assert float(stats.cosine) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("plan", ["full", "low_rank"])
def test_split_is_a_float32_master_bit_for_bit(specs, params, plan):
    update = updater(specs, plan=plan)
    exact, halves = (make_master(params, specs=specs, format=name) for name in ("float32", "split"))
    for generation in range(4):
        exact, a = update(0, generation, exact, WEIGHTS, ALPHA)
        halves, b = update(0, generation, halves, WEIGHTS, ALPHA)
        assert digest(exact) == digest(halves)
        assert jax.tree.all(jax.tree.map(lambda x, y: bool(x == y), a, b))
    assert any((values(exact)[path] != np.asarray(x)).all() for path, x in params.items())


def test_a_step_is_rounded_before_it_is_added(specs, params):
    """As NumPy does it, never as one fused multiply-add, so that a step is the same whatever the storage.

    One member alone has a coefficient, 1: its sum is its noise, bit for bit.
    """
    weights = np.eye(P, dtype=np.float32)[2]
    master, _ = updater(specs)(0, 0, make_master(params, specs=specs, format="float32"), weights, ALPHA)
    factor = np.float32(ALPHA) / np.float32(P)
    for spec in specs:
        noise = np.asarray(sample_noise(noise_key(0, 0, 2), spec))
        np.testing.assert_array_equal(master[spec.path], np.asarray(params[spec.path]) + factor * noise)


@pytest.mark.parametrize(
    ("name", "plan", "rounding"),
    [("float32", "full", "nearest"), ("split", "low_rank", "nearest"), ("bfloat16", "full", "stochastic")],
)
def test_equal_rewards_leave_every_bit_alone(specs, params, name, plan, rounding):
    signed = {path: x.at[..., 0].set(-0.0) for path, x in params.items()}
    master = make_master(signed, specs=specs, format=name)
    before = digest(master)
    master, stats = updater(specs, plan=plan, rounding=rounding)(0, 0, master, np.zeros(P, np.float32), ALPHA)
    assert digest(master) == before
    assert [float(x) for x in jax.tree.leaves(stats)] == [0, 0, 1, 1]


def test_a_leaf_moves_alike_in_any_company(specs, params):
    together, _ = updater(specs)(0, 0, make_master(params, specs=specs, format="float32"), WEIGHTS, ALPHA)
    for i in (1, 4, 6):
        own = {specs[i].path: params[specs[i].path]}
        alone, _ = updater(specs[i : i + 1])(
            0, 0, make_master(own, specs=specs[i : i + 1], format="float32"), WEIGHTS, ALPHA
        )
        assert (alone[specs[i].path] == together[specs[i].path]).all()


def test_alpha_0_moves_nothing_and_steps_are_linear_in_alpha(specs, params):
    update = updater(specs)
    still, _ = update(0, 0, make_master(params, specs=specs, format="float32"), WEIGHTS, 0.0)
    assert digest(still) == digest(make_master(params, specs=specs, format="float32"))
    zeros = {path: jnp.zeros_like(x) for path, x in params.items()}
    one, _ = update(0, 0, make_master(zeros, specs=specs, format="float32"), WEIGHTS, 0.25)
    two, _ = update(0, 0, make_master(zeros, specs=specs, format="float32"), WEIGHTS, 0.5)
    for path in params:
        assert (2 * one[path] == two[path]).all()


def test_nearest_bfloat16_loses_small_steps_and_stochastic_does_not(specs, params):
    """Mean over generations of what was applied, against what was intended."""
    lost, kept = {}, {}
    for rounding, found in (("nearest", lost), ("stochastic", kept)):
        update = updater(specs, rounding=rounding)
        master = make_master(params, specs=specs, format="bfloat16")
        exact = make_master({p: jnp.asarray(x) for p, x in values(master).items()}, specs=specs, format="float32")
        start = values(master)
        for generation in range(20):
            master, stats = update(0, generation, master, WEIGHTS, 3e-4)
            exact, _ = updater(specs)(0, generation, exact, WEIGHTS, 3e-4)
        path = "large.weight"
        intended, applied = (values(m)[path] - start[path] for m in (exact, master))
        found["slope"] = float((intended * applied).sum() / (intended**2).sum())
        found |= {name: float(getattr(stats, name)) for name in ("applied_fraction", "cosine")}
    assert lost["applied_fraction"] < 0.7 and lost["cosine"] < 0.95 and lost["slope"] < 0.95
    assert kept["slope"] == pytest.approx(1, abs=0.05)


def test_stochastic_rounding_is_reproducible_and_its_own_randomness(specs, params):
    def run(rounding, seed=0, generation=0):
        master = make_master(params, specs=specs, format="bfloat16")
        return values(updater(specs, rounding=rounding)(seed, generation, master, WEIGHTS, ALPHA)[0])

    a, b, nearest = run("stochastic"), run("stochastic"), run("nearest")
    step = {path: abs(a[path] - nearest[path]) for path in params}
    assert all((a[path] == b[path]).all() for path in params)
    for spec in specs:
        if spec.keep_float32:
            assert (step[spec.path] == 0).all()
        else:  # one neighbour further at most
            assert (step[spec.path] <= np.maximum(abs(a[spec.path]), abs(nearest[spec.path])) * 2**-7).all()
    assert (step["large.weight"] > 0).mean() == pytest.approx(0.25, abs=0.02)  # E min(f, 1-f) for a uniform fraction f


def test_stats_count_what_should_have_moved(specs, params):
    huge = {path: jnp.full_like(x, 1e4) for path, x in params.items()}
    _, stats = updater(specs)(0, 0, make_master(huge, specs=specs, format="bfloat16"), WEIGHTS, 1e-3)
    moved = sum(spec.size for spec in specs if spec.keep_float32) / sum(spec.size for spec in specs)
    assert float(stats.applied_fraction) <= moved + 1e-6
    assert float(stats.update_norm) > 0
    half = updater(specs, multipliers={"matrix": 0.0})
    _, stats = half(0, 0, make_master(params, specs=specs, format="float32"), WEIGHTS, ALPHA)
    assert float(stats.applied_fraction) == 1  # a frozen group was not meant to move


def test_the_update_is_traceable(specs, params):
    update = updater(specs)
    outside, _ = update(3, 1, make_master(params, specs=specs, format="split"), WEIGHTS, ALPHA)
    inside, _ = jax.jit(update)(jnp.uint32(3), 1, make_master(params, specs=specs, format="split"), WEIGHTS, ALPHA)
    assert digest(inside) == digest(outside)


def test_bad_input(specs, params):
    with pytest.raises(EsoptError, match=r"population_size is 5.*even"):
        updater(specs, population_size=5, antithetic=True)
    with pytest.raises(EsoptError, match=r"shape \(5,\).*6 members"):
        updater(specs)(0, 0, make_master(params, specs=specs, format="float32"), WEIGHTS[:5], ALPHA)
