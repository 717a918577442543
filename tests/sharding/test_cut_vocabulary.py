"""A cut vocabulary samples what a whole one does, and neither sampling nor noise gathers what is cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = r"""
import json, re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from esopt_jax.config import RolloutConfig
from esopt_jax.core import members, steps
from esopt_jax.core.noise import leaf_hashes, noise_key
from esopt_jax.models.sharding import leaf_sharding, make_mesh
from esopt_jax.rollouts.sampler import Counts, make_sampling, sample
from esopt_jax.types import LeafSpec

mesh = make_mesh((1, 4))
rows, size = 64, 128
rng = np.random.default_rng(0)
logits = np.round(3 * rng.standard_normal((rows, size)), 1).astype(np.float32)  # with ties
keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), rows)
position = jnp.zeros(rows, jnp.int32)
said = rng.integers(0, 3, (rows, size)).astype(np.int32)
counts = Counts(generated=jnp.asarray(said), prompt=jnp.asarray(said > 1))
penalties = dict(presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=1.3)
ways = dict(
    plain={}, greedy=dict(temperature=0.0), top_k=dict(top_k=7), more_than_a_part=dict(top_k=50, top_p=0.8),
    top_p=dict(top_p=0.7), min_p=dict(min_p=0.2), penalties=penalties, all=dict(top_k=9, top_p=0.9, **penalties),
)
found = {"devices": jax.device_count(), "same": {}, "gathers": {}}

def gathers(compiled):
    return len(re.findall(r"\s(all-gather|all-to-all|collective-permute)[-(.]", compiled.as_text()))

for name, way in ways.items():
    sampling = make_sampling(RolloutConfig(**way))
    seen = counts if sampling.flags.penalties else None

    def draw(logits):
        return sample(keys, logits, position, sampling, vocab_limit=100, counts=seen)

    whole = np.asarray(jax.jit(draw)(jnp.asarray(logits)))
    with jax.set_mesh(mesh):
        cut = jax.device_put(logits, NamedSharding(mesh, PartitionSpec(None, "model")))
        compiled = jax.jit(draw).lower(cut).compile()
        same = int((np.asarray(compiled(cut)) == whole).sum())
        found["same"][name] = [same, int(whole.max()), len(set(whole.tolist()))]
        found["gathers"][name] = gathers(compiled)

specs = (
    LeafSpec("heads", (64, 8, 16), (None, "kv_heads", None), 1, "normal", "heads"),
    LeafSpec("gain", (7,), (None,), 0, "ones", "gain"),
    LeafSpec("large", (704, 8, 16), (None, "kv_heads", None), 1, "normal", "large"),
)
drawn = jax.vmap(lambda member: noise_key(0, 0, member))(jnp.arange(2))
hashes, ones = leaf_hashes(specs), np.ones(2, np.float32)
with jax.set_mesh(mesh):
    leaves = [jax.device_put(jnp.ones(spec.shape), leaf_sharding(spec, mesh)) for spec in specs]
    small, forms = tuple(leaves[:2]), tuple(spec.noise_form for spec in specs[:2])
    one, form, f32 = leaves[2], specs[2].noise_form, jnp.float32
    programs = {
        "members": members.pooled_members.lower(
            drawn, small, jnp.ones(2), hashes[:2], ones, forms=forms, dtypes=(f32, f32)
        ),
        "member": members.large_members.lower(drawn, one, jnp.ones(2), hashes[2], ones[0], form=form, dtype=f32),
    }
    for rank in (0, 2):
        programs[f"pool {rank}"] = steps.update_pool.lower(
            drawn, small, jnp.ones(2), hashes[:2], ones, None, forms=forms, rank=rank
        )
        programs[f"leaf {rank}"] = steps.update_large.lower(
            drawn, one, jnp.ones(2), hashes[2], ones[0], None, form=form, rank=rank
        )
    found["gathers"] |= {name: gathers(program.compile()) for name, program in programs.items()}
print(json.dumps(found))
"""


def test_a_cut_vocabulary_samples_the_same_and_nothing_is_gathered():
    env = {**os.environ, "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] == 4 and len(found["same"]) == 8
    for name, (same, largest, distinct) in found["same"].items():
        assert same == 64 and largest < 100 and distinct > 10, name
    assert len(found["gathers"]) == 14 and not any(found["gathers"].values()), found["gathers"]
