"""No array of N x weights: read off the compiled programs, with a control that such an array would be found."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core import layout, members, steps
from esopt_jax.core.master import make_master
from esopt_jax.core.noise import noise_key, sample_noise
from esopt_jax.core.perturb import perturb_population
from esopt_jax.core.rounding import Split
from esopt_jax.core.update import make_update

BYTES = {"pred": 1, "u8": 1, "s8": 1, "u16": 2, "s16": 2, "bf16": 2, "u32": 4, "s32": 4, "f32": 4, "c64": 8, "f64": 8}
N = 64


def largest_array(function, *args):
    """Bytes of the largest array in the compiled program, temporaries inside fusions included."""
    text = jax.jit(function).lower(*args).compile().as_text()
    shapes = set(re.findall(r"\b(\w+)\[([\d,]*)\]", text))
    return max(BYTES.get(kind, 4) * math.prod(int(d) for d in dims.split(",") if d) for kind, dims in shapes)


@pytest.fixture(scope="module")
def weights_bytes(specs):
    return 4 * sum(spec.size for spec in specs)


@pytest.mark.parametrize("plan", ["full", "low_rank"])
def test_the_update_holds_no_population(specs, params, weights_bytes, plan):
    master = make_master(params, specs=specs, format="split")
    update = make_update(specs, population_size=N, plan=plan, rank=1)
    assert largest_array(update, 0, 0, master, jnp.ones(N), 0.1) < 2 * weights_bytes
    assert weights_bytes * 8 < N * weights_bytes  # the bound above would catch an eighth of the population


def test_one_member_a_pass_holds_one_member(specs, params, weights_bytes):
    master = make_master(params, specs=specs, format="float32")

    def perturbed(members):
        at = {"specs": specs, "sigma": 0.1, "plan": "full", "rank": 1, "dtype": jnp.float32}
        return perturb_population(0, 0, members, master, **at)

    assert largest_array(perturbed, jnp.zeros(1, jnp.int32)) < 2 * weights_bytes
    assert largest_array(perturbed, jnp.arange(N)) > 20 * weights_bytes  # control: N members a pass are seen


def test_control_a_stacked_population_is_seen(specs, params, weights_bytes):
    def stacked(weights):
        keys = jax.vmap(lambda m: noise_key(0, 0, m))(jnp.arange(N))
        noise = jax.vmap(lambda key: sample_noise(key, specs[-1]))(keys)
        return jax.lax.sort(noise, dimension=0).sum(axis=0) + jnp.tensordot(weights, noise, 1)

    assert largest_array(stacked, jnp.ones(N)) > 20 * weights_bytes


@pytest.mark.parametrize("form", [(50_000, 5120), (1, 300_000), (248_320, 5120), (17_408, 5120), (64, 64)])
def test_blocks_are_bounded(form):
    rows = layout.block_rows(form)
    columns = form[1]
    assert rows >= 1 and -(-form[0] // rows) * rows >= form[0]
    assert rows == 1 or rows * columns <= layout.BLOCK_VALUES
    accumulator_and_draw = 2 * 8 * rows * (-(-columns // 256) * 128)  # complex64 pairs
    assert accumulator_and_draw < 256e6


@pytest.mark.parametrize("name", ["float32", "split"])
@pytest.mark.parametrize("rank", [0, 4])
def test_scratch_of_a_large_leaf_is_bounded(name, rank):
    """XLA's own account of temporary memory: a few blocks, and the bits of `hi` of a `split` leaf; no second leaf."""
    form = (120_001, 768)
    whole = jax.ShapeDtypeStruct(form, jnp.float32)
    halves = Split(jax.ShapeDtypeStruct(form, jnp.bfloat16), jax.ShapeDtypeStruct(form, jnp.int16))
    leaf = whole if name == "float32" else halves
    keys = jax.vmap(lambda m: noise_key(0, 0, m))(jnp.arange(8))
    args = keys, leaf, jnp.ones(8), np.uint32(1), np.float32(1)
    update = steps.update_large.lower(*args, None, form=form, rank=rank).compile().memory_analysis()
    bits = 0 if name == "float32" else 2 * math.prod(form)
    assert update.temp_size_in_bytes < bits + (128e6 if rank else 16e6)
    assert update.alias_size_in_bytes == 4 * math.prod(form)  # written in place
    if not rank:
        views = members.large_members.lower(*args, form=form, dtype=jnp.dtype("float32")).compile().memory_analysis()
        assert views.temp_size_in_bytes < bits + 16e6
