"""What XLA makes of the decode loop: caches are updated in place, never chosen between."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.config import RolloutConfig
from esopt_jax.core.master import make_master
from esopt_jax.core.perturb import perturb_population, view_axes
from esopt_jax.rollouts.decode import DecodeSpec, decode_segment, init_state
from esopt_jax.rollouts.sampler import make_sampling

M, C, CAPACITY = 2, 3, 37
COLLECTIVES = r"all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute"


@pytest.fixture(scope="module")
def compiled(tiny):
    spec = DecodeSpec(arch=tiny.arch, eos_ids=(0,), vocab_limit=48, max_new_tokens=8, capacity=CAPACITY)
    master = make_master(tiny.params, specs=tiny.specs, format="float32")
    view = perturb_population(
        0, 0, jnp.arange(M), master, specs=tiny.specs, sigma=0.1, plan="low_rank", rank=2, dtype=jnp.float32
    )
    run = jax.jit(partial(decode_segment, spec=spec, axes=view_axes(view)), donate_argnums=1)
    state = init_state(spec, (M, C))
    return run.lower(view, state, 8, make_sampling(RolloutConfig())).compile(), state


def test_no_select_over_keys_and_values(compiled):
    text = compiled[0].as_text()
    # capacity occurs in no other shape, so any select of such a size is one over a cache or a whole mask
    found = [
        np.prod([int(n) for n in dims.split(",")])
        for dims in re.findall(r"= \w+\[([\d,]*37[\d,]*)\]\S* select\(", text)
    ]
    assert all(size <= M * C * 4 * CAPACITY for size in found), found  # scores of 4 heads, not [.., 8, 37] keys


def test_no_copy_of_keys_and_values(compiled):
    text = compiled[0].as_text()
    assert not re.findall(r"= \w+\[2,3,2,(?:8,37|37,8)\]\S* copy\(", text)


def test_state_is_updated_in_place(compiled):
    size = sum(x.nbytes for x in jax.tree.leaves(compiled[1].cache))
    assert compiled[0].memory_analysis().alias_size_in_bytes >= size


def test_one_device_needs_no_collective(compiled):
    assert not re.findall(COLLECTIVES, compiled[0].as_text())
