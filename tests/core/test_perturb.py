import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from esopt_jax.core.digest import digest
from esopt_jax.core.master import base_view, make_master, master_value
from esopt_jax.core.noise import noise_key, sample_factors, sample_noise
from esopt_jax.core.perturb import Factored, materialize, member_view, perturb, perturb_population, view_axes

KINDS = [
    ("float32", "full", "float32"),
    ("split", "full", "bfloat16"),
    ("split", "low_rank", "bfloat16"),
    ("float32", "low_rank", "float32"),
]
SIGMA, RANK, SEED, GENERATION = 0.0217, 3, 3, 5


def arguments(specs, kind, **more):
    return {"specs": specs, "sigma": SIGMA, "plan": kind[1], "rank": RANK, "dtype": jnp.dtype(kind[2])} | more


def drawn(view):
    """What members own, without the shared base."""
    return {path: (x.left, x.right) if isinstance(x, Factored) else x for path, x in view.items()}


def same_bits(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(
        x.dtype == y.dtype and x.shape == y.shape and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in pairs
    )


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids="-".join)
def test_a_member_has_the_same_bits_alone_vmapped_mapped_and_jitted(specs, params, kind):
    specs = (specs[1], *specs[-2:])  # a pooled matrix, a vector and a large leaf
    params = {spec.path: params[spec.path] for spec in specs}
    master, at = make_master(params, specs=specs, format=kind[0]), arguments(specs, kind)
    members = jnp.arange(3)
    population = drawn(perturb_population(SEED, GENERATION, members, master, **at))
    keys = jnp.stack([noise_key(SEED, GENERATION, m) for m in range(3)])

    def one(key):
        return drawn(perturb(key, master, **at))

    @jax.jit
    def both_ways(keys):
        return jax.vmap(one)(keys), lax.map(one, keys)

    for way in both_ways(keys):
        assert same_bits(way, population)
    assert same_bits(one(keys[1]), jax.tree.map(lambda x: x[1], population))


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_a_member_has_the_same_bits_in_any_pass(specs, params, kind):
    master, at = make_master(params, specs=specs, format=kind[0]), arguments(specs, kind)
    together = drawn(perturb_population(SEED, GENERATION, jnp.arange(3), master, **at))
    alone = drawn(perturb_population(SEED, GENERATION, jnp.array([2]), master, **at))
    assert same_bits(alone, jax.tree.map(lambda x: x[2:], together))


@pytest.mark.parametrize(("kind", "tolerance"), [(KINDS[0], 1e-7), (KINDS[1], 2**-8)])
def test_full_members_are_base_plus_sigma_eps(specs, params, kind, tolerance):
    key = noise_key(SEED, GENERATION, 1)
    view = perturb(key, make_master(params, specs=specs, format=kind[0]), **arguments(specs, kind))
    for spec in specs:
        noise = np.float32(SIGMA) * np.asarray(sample_noise(key, spec), np.float64)
        expected = np.asarray(params[spec.path], np.float64) + noise
        assert view[spec.path].dtype == (jnp.float32 if spec.keep_float32 else kind[2])
        assert np.asarray(view[spec.path], np.float64) == pytest.approx(expected, rel=tolerance, abs=1e-7)


def test_low_rank_members_are_base_plus_factors(specs, params):
    master = make_master(params, specs=specs, format="float32")
    key = noise_key(SEED, GENERATION, 1)
    view = perturb(key, master, **arguments(specs, ("", "low_rank", "float32")), sign=-1.0)
    dense = materialize(view, specs)
    for spec in specs:
        x, base = view[spec.path], np.asarray(params[spec.path], np.float64)
        if spec.is_matrix:
            rows, columns = spec.noise_form
            assert x.left.shape == (RANK, rows) and x.right.shape == (RANK, columns) and x.base.shape == spec.shape
            left, right = (np.asarray(f, np.float64) for f in sample_factors(key, spec, rank=RANK))
            noise = (left.T @ right / np.sqrt(RANK)).reshape(spec.shape)
        else:
            noise = np.asarray(sample_noise(key, spec), np.float64)
        assert dense[spec.path].shape == spec.shape
        assert np.asarray(dense[spec.path], np.float64) == pytest.approx(base - SIGMA * noise, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS[1:3], ids="-".join)
def test_antithetic_members_mirror_each_other(specs, params, kind):
    master, at = make_master(params, specs=specs, format=kind[0]), arguments(specs, kind)
    view = perturb_population(SEED, 0, jnp.arange(3), master, antithetic=True, **at)
    base = materialize(base_view(master, specs=specs, dtype=jnp.float32), specs)
    plus, minus, other = (materialize(member_view(view, m), specs) for m in (0, 1, 2))
    for path, x in base.items():
        slack = 2**-7 if kind[2] == "bfloat16" else 1e-6
        assert np.asarray(plus[path] + minus[path]) == pytest.approx(np.asarray(2 * x), abs=slack)
        assert not np.allclose(plus[path], other[path], atol=SIGMA / 100)


def test_vmap_over_a_population_view(specs, params):
    master = make_master(params, specs=specs, format="split")
    for plan in ("full", "low_rank"):
        view = perturb_population(0, 0, jnp.arange(3), master, **arguments(specs, ("", plan, "bfloat16")))
        axes = view_axes(view)
        assert axes["norm.weight"] == 0
        if plan == "low_rank":
            assert view["embed.weight"].base is master["embed.weight"].hi  # shared, and no copy
        total = jax.vmap(lambda v: sum(x.sum() for x in jax.tree.leaves(materialize(v, specs))), in_axes=(axes,))(view)
        alone = [sum(float(x.sum()) for x in materialize(member_view(view, m), specs).values()) for m in range(3)]
        assert np.asarray(total) == pytest.approx(alone, rel=1e-3, abs=0.05)


def test_multipliers_scale_the_noise_of_a_group(specs, params):
    master = make_master(params, specs=specs, format="float32")
    zero = {"norm": 0.0, "embedding": 3.0}
    for plan in ("full", "low_rank"):
        at = arguments(specs, ("", plan, "float32"))
        plain = materialize(perturb(noise_key(0, 0, 0), master, **at), specs)
        scaled = materialize(perturb(noise_key(0, 0, 0), master, multipliers=zero, **at), specs)
        for spec in specs:
            a, b = (np.asarray(x[spec.path] - params[spec.path]) for x in (plain, scaled))
            assert b == pytest.approx(zero.get(spec.group, 1.0) * a, rel=1e-4, abs=1e-6)
            assert (b == 0).all() == (spec.group == "norm")


@pytest.mark.parametrize("kind", KINDS[1:3], ids="-".join)
def test_the_base_is_never_written(specs, params, kind):
    master = make_master(params, specs=specs, format=kind[0])
    before = digest(master)
    for generation in range(5):
        jax.block_until_ready(perturb_population(0, generation, jnp.arange(3), master, **arguments(specs, kind)))
    assert digest(master) == before
    for spec in specs:
        assert (master_value(master[spec.path]) == params[spec.path]).all()


def test_sigma_0_is_the_base(specs, params):
    master = make_master(params, specs=specs, format="float32")
    for plan in ("full", "low_rank"):
        view = perturb(noise_key(0, 0, 0), master, **arguments(specs, ("", plan, "float32"), sigma=0.0))
        for path, x in materialize(view, specs).items():
            assert (x == params[path]).all()
