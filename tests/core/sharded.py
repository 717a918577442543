"""Digests of noise, members and updates; run by `test_noise_sharded.py` here and on 4 forced devices."""

import itertools
import json
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from esopt_jax.core.digest import digest
from esopt_jax.core.master import make_master, master_value
from esopt_jax.core.noise import noise_key, sample_noise
from esopt_jax.core.perturb import Factored, perturb_population, unwrapped
from esopt_jax.core.update import make_update
from esopt_jax.types import LeafSpec

SPECS = (
    LeafSpec("small", (8, 4, 100), (None, "heads", None), 1, "normal", "small"),
    LeafSpec("vector", (7,), (None,), 0, "normal", "vector"),
    LeafSpec("large", (704, 4, 32), (None, "heads", None), 1, "normal", "large"),
)
ROWS = {"small": ("model", None, None), "vector": (), "large": ("model", None, None)}
HEADS = {"small": (None, "model", None), "vector": (), "large": (None, "model", None)}
WHOLE = {spec.path: () for spec in SPECS}
FORMATS = {"full": "float32", "low_rank": "split", "scoped": "float32"}
HOW = {"full": {"plan": "full"}, "low_rank": {"plan": "low_rank"}, "scoped": {"plan": "full", "scope": "pattern:small"}}


def base(name):
    rng = np.random.default_rng(0)
    return make_master(
        {s.path: jnp.asarray(rng.standard_normal(s.shape), jnp.float32) for s in SPECS}, specs=SPECS, format=name
    )


def drawn(view):
    parts = {}
    for path, x in unwrapped(view).items():
        parts |= {path + ".left": x.left, path + ".right": x.right} if isinstance(x, Factored) else {path: x}
    return parts


def views(members, master, plan):
    at = {"specs": SPECS, "sigma": 0.1, "rank": 2, "dtype": jnp.float32} | HOW[plan]
    return drawn(perturb_population(0, 0, members, master, **at))


def step(master, plan):
    update = make_update(SPECS, population_size=4, rank=2, **HOW[plan])
    return update(0, 0, master, jnp.asarray([1.0, -1.0, 0.5, -0.5]), 0.1)[0]


def on_one_device(result):
    """Digest of the result called `kind what`, such as `update full`."""
    kind, what = result.split()
    if kind == "noise":
        spec = next(spec for spec in SPECS if spec.path == what)
        return digest({"x": sample_noise(noise_key(0, 0, 1), spec)})
    if kind == "base":
        return digest(base(what))
    master = base(FORMATS[what])
    return digest(step(master, what)) if kind == "update" else digest(views(jnp.arange(4), master, what))


def on_four_devices(every):
    """Results under a few placements, or `every` one: `{name: [digest, ...]}`."""
    found, off = {}, 0.0

    def add(result, tree):
        found.setdefault(result, []).append(tree if isinstance(tree, str) else digest(jax.tree.map(one_device, tree)))

    placements = itertools.product((AxisType.Auto, AxisType.Explicit), (ROWS, HEADS, WHOLE), FORMATS)
    few = [(AxisType.Explicit, HEADS, plan) for plan in ("full", "scoped")]
    for kind, placement, plan in placements if every else few:
        if kind == AxisType.Auto and plan == "low_rank":
            continue  # under automatic sharding a product's last bits depend on how XLA splits it
        mesh = jax.make_mesh((1, 4), ("member", "model"), axis_types=(kind, kind))
        with jax.set_mesh(mesh):
            master = put(base(FORMATS[plan]), mesh, placement)
            add(f"base {FORMATS[plan]}", digest(master))
            add(f"views {plan}", views(jnp.arange(4), master, plan))
            if plan == "low_rank" and placement != WHOLE:
                off = max(off, largest_difference(step(master, plan), step(base(FORMATS[plan]), plan)))
            else:
                add(f"update {plan}", digest(step(master, plan)))
    mesh = jax.make_mesh((1, 4), ("member", "model"), axis_types=(AxisType.Auto,) * 2)
    for spec in SPECS[::2]:
        rows = NamedSharding(mesh, PartitionSpec("model"))
        draw = jax.jit(partial(sample_noise, spec=spec), out_shardings=rows)(noise_key(0, 0, 1))
        assert len({str(shard.index) for shard in draw.addressable_shards}) == 4
        add(f"noise {spec.path}", {"x": draw})
    mesh = jax.make_mesh((4, 1), ("member", "model"), axis_types=(AxisType.Explicit,) * 2)
    each, whole = PartitionSpec("member"), PartitionSpec()
    for plan in FORMATS:
        out = {"small": each, "vector": whole, "large": whole} if plan == "scoped" else each
        run = jax.shard_map(partial(views, plan=plan), mesh=mesh, in_specs=(each, whole), out_specs=out)
        with jax.set_mesh(mesh):
            members = jax.device_put(jnp.arange(4), NamedSharding(mesh, each))
            add(f"views {plan}", jax.jit(run)(members, put(base(FORMATS[plan]), mesh, WHOLE)))
    return found | {"low-rank update, off by": off}


def largest_difference(one, other):
    return max(float(np.abs(np.asarray(master_value(one[p])) - np.asarray(master_value(other[p]))).max()) for p in one)


def one_device(x):
    return jnp.asarray(np.asarray(x))


def put(master, mesh, placement):
    return {
        path: jax.tree.map(lambda x, p=path: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*placement[p]))), leaf)
        for path, leaf in master.items()
    }


if __name__ == "__main__":
    assert jax.device_count() == 4, jax.devices()
    json.dump(on_four_devices(every="every" in sys.argv), sys.stdout)
