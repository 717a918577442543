"""Leaves in scope move as in a full run, bit for bit; the others are untouched and owned by no member."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.digest import digest
from esopt_jax.core.master import base_view, make_master
from esopt_jax.core.noise import noise_key
from esopt_jax.core.perturb import Shared, member_view, perturb, perturb_population, unwrapped, view_axes
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.update import make_update
from esopt_jax.errors import EsoptError

P, RANK = 4, 2
WEIGHTS = np.array([0.7, -1.3, 0.2, 1.1], np.float32)
SCOPES = ["all_linear", "pattern:^layers", r"pattern:norm|A_log", "pattern:large"]
PLANS = [("float32", "full", "float32"), ("split", "full", "bfloat16"), ("split", "low_rank", "bfloat16")]


def bits(tree):
    return [(x.dtype, x.shape, np.asarray(x).tobytes()) for x in jax.tree.leaves(tree)]


def at(specs, kind, scope="full"):
    how = {"plan": kind[1], "rank": RANK, "dtype": jnp.dtype(kind[2]), "scope": scope}
    return {"specs": specs, "sigma": 0.05, **how}


def test_which_leaves_are_in_a_scope(specs):
    paths = [spec.path for spec in specs]
    assert tuned_specs(specs, "full") is specs
    linear = [spec.path for spec in tuned_specs(specs, "all_linear")]
    assert linear == ["layers.0.up.weight", "layers.1.up.weight", "large.weight"]
    assert [s.path for s in tuned_specs(specs, r"pattern:^layers\.0\.")] == [p for p in paths if "layers.0." in p]


def test_a_scope_without_leaves_is_refused(specs):
    with pytest.raises(EsoptError, match=r"'pattern:attention', which no leaf of the model is in.*embed\.weight"):
        tuned_specs(specs, "pattern:attention")
    with pytest.raises(EsoptError, match="'linear'; it must be full, all_linear, pattern:REGEX"):
        tuned_specs(specs, "linear")


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", PLANS, ids="-".join)
def test_members_have_the_bits_of_a_full_run_inside_and_the_base_outside(specs, params, kind, scope):
    master = make_master(params, specs=specs, format=kind[0])
    whole, part = (perturb_population(3, 5, jnp.arange(3), master, **at(specs, kind, name)) for name in ("full", scope))
    base = base_view(master, specs=specs, dtype=jnp.dtype(kind[2]))
    inside = {spec.path for spec in tuned_specs(specs, scope)}
    assert list(part) == list(whole)
    for path, leaf in part.items():
        if path in inside:
            assert bits(leaf) == bits(whole[path])
        else:
            assert isinstance(leaf, Shared) and bits(leaf.base) == bits(base[path])
    one = perturb(noise_key(3, 5, 1), master, **at(specs, kind, scope))
    assert bits(one) == bits(member_view(part, 1))
    assert not any(isinstance(leaf, Shared) for leaf in one.values())


def test_what_is_shared_is_no_copy_and_has_no_member_axis(specs, params):
    master = make_master(params, specs=specs, format="float32")
    view = perturb_population(0, 0, jnp.arange(3), master, **at(specs, PLANS[0], "all_linear"))
    assert view["embed.weight"].base is master["embed.weight"] and view["norm.weight"].base is master["norm.weight"]
    axes = view_axes(view)
    assert axes["embed.weight"] is None and axes["large.weight"] == 0

    def seen(view):
        assert view["embed.weight"].shape == params["embed.weight"].shape
        return view["embed.weight"].sum() + view["large.weight"].sum()

    found = jax.vmap(seen, in_axes=(axes,))(unwrapped(view))
    assert found.shape == (3,) and len(set(found.tolist())) == 3


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("name", "plan", "rounding"),
    [("float32", "full", "nearest"), ("split", "low_rank", "nearest"), ("bfloat16", "full", "stochastic")],
)
def test_an_update_moves_the_scope_as_a_full_one_does_and_nothing_else(specs, params, scope, name, plan, rounding):
    how = {"population_size": P, "plan": plan, "rank": RANK, "rounding": rounding}
    full, part = (make_update(specs, scope=which, **how) for which in ("full", scope))
    after, _ = full(1, 2, make_master(params, specs=specs, format=name), WEIGHTS, 0.03)
    before, given = (make_master(params, specs=specs, format=name) for _ in range(2))
    found, stats = part(1, 2, given, WEIGHTS, 0.03)
    inside = {spec.path for spec in tuned_specs(specs, scope)}
    assert list(found) == list(after)
    for path, leaf in found.items():
        assert bits(leaf) == bits(after[path] if path in inside else before[path])
        assert path in inside or leaf is given[path]
    assert digest(found) != digest(before)
    assert float(stats.update_norm) > 0 and (name == "bfloat16" or float(stats.applied_fraction) > 0.9)


def test_the_length_of_a_step_is_that_of_its_scope(specs, params):
    """Stats speak of what was meant to move: squared lengths of disjoint scopes add up to that of all."""
    squares = []
    for scope in ("full", "all_linear", "pattern:embed|conv|A_log|norm"):
        update = make_update(specs, population_size=P, plan="full", rank=1, scope=scope)
        squares.append(
            float(update(0, 0, make_master(params, specs=specs, format="float32"), WEIGHTS, 0.1)[1].update_norm) ** 2
        )
    assert squares[0] == pytest.approx(squares[1] + squares[2], rel=1e-5) and min(squares) > 0


def test_a_scope_draws_no_more_noise_than_it_needs(specs, params):
    """The compiled update of one small leaf holds nothing of the size of the large one."""
    master = make_master(params, specs=specs, format="float32")

    def flops(scope):
        update = make_update(specs, population_size=P, plan="full", rank=1, scope=scope)
        return jax.jit(update).lower(0, 0, master, WEIGHTS, 0.1).compile().cost_analysis()["flops"]

    assert flops("pattern:A_log") < flops("full") / 20
