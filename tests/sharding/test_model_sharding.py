"""A model on a mesh is the model on one device, for each family. Runs in a process of its own with forced devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

COMMON = {
    "vocab_size": 64,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
}
QWEN = COMMON | {
    "model_type": "qwen3_5_text",
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
}
LLAMA = COMMON | {
    "model_type": "llama",
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "rope_theta": 1e4,
}
CASES = {
    "qwen": (QWEN, (1, 4)),
    "llama": (LLAMA, (1, 2)),
    "uneven": (QWEN | {"num_key_value_heads": 2}, (1, 4)),
}
SCRIPT = r"""
import json, re, sys
import jax, jax.numpy as jnp, numpy as np
from esopt_jax.errors import EsoptError
from esopt_jax.models.registry import decode_step, init_cache, leaf_specs, parse_architecture, prefill, score
from esopt_jax.models.sharding import leaf_sharding, make_mesh

config, shape = json.loads(sys.argv[1])
arch = parse_architecture(config)
specs = leaf_specs(arch)
rng = np.random.default_rng(0)
params = {s.path: jnp.asarray(0.3 * rng.standard_normal(s.shape), jnp.float32) for s in specs}
tokens, lengths = jnp.asarray(rng.integers(0, 64, (3, 8))), jnp.array([7, 5, 1])

def loss(view):
    logits = score(view, tokens, jnp.full(3, 8), arch=arch)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1)), logits

def read(view, cache):
    return prefill(view, cache, tokens, lengths, arch=arch)

def step(view, cache):
    return decode_step(view, cache, tokens[jnp.arange(3), lengths], jnp.ones(3, bool), arch=arch)

def host(tree):
    return jax.tree.map(np.asarray, jax.device_get(tree))

def gap(one, other):
    return float(np.abs(one - other).max())

def build(f, *args):
    compiled = jax.jit(f).lower(*args).compile()
    text = compiled.as_text()
    names = sorted(set(re.findall(r"\s(all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute)", text)))
    return compiled, names

whole = host(jax.jit(loss)(params)[1])
rows = np.arange(3)
after = lambda n: whole[rows, n - 1]
mesh = make_mesh(shape)
found = {"devices": jax.device_count(), "scale": float(np.abs(whole).max())}
with jax.set_mesh(mesh):
    sharded = {s.path: jax.device_put(params[s.path], leaf_sharding(s, mesh)) for s in specs}
    shards = {s.path: sharded[s.path].addressable_shards[0].data.size * mesh.size == s.size for s in specs}
    found["whole"] = sorted(path for path, split in shards.items() if not split)
    found["cache"] = str(jax.typeof(init_cache(arch, 3, 24).layers[1].k))
    empty = init_cache(arch, 3, 12)
    reader, found["prefill"] = build(read, sharded, empty)
    last, cache = reader(sharded, empty)
    stepper, found["step"] = build(step, sharded, cache)
    then, cache = stepper(sharded, cache)
    gradient, logits = host(jax.jit(jax.grad(loss, has_aux=True))(sharded))
    found["gap"] = max(gap(host(last), after(lengths)), gap(host(then), after(lengths + 1)), gap(logits, whole))
    found["finite"] = all(bool(np.isfinite(x).all()) for x in gradient.values())
    found["moving"] = min(float(np.abs(x).max()) for x in gradient.values())
refusals = []
odd = leaf_specs(parse_architecture(config | dict(intermediate_size=33)))
for call in (lambda: make_mesh((2, 4)), lambda: [leaf_sharding(s, mesh) for s in odd]):
    try:
        call()
    except EsoptError as fault:
        refusals.append(str(fault))
found["refusals"] = refusals
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=CASES)
def found(request):
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(CASES[request.param])],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout)
    assert found["devices"] == 4
    return found | {"name": request.param}


def test_logits_are_those_of_one_device(found):
    assert found["scale"] > 1
    assert found["gap"] <= 5e-5


def test_every_weight_but_the_norms_is_split(found):
    norms = {"norm", "q_norm", "k_norm", "input_layernorm", "post_attention_layernorm"}
    uneven = {"q_proj", "k_proj", "v_proj", "o_proj"} if found["name"] == "uneven" else set()
    whole = {path.rsplit(".", 2)[-2] for path in found["whole"]}
    assert whole - norms == uneven
    assert ("model" in found["cache"]) is not bool(uneven)


@pytest.mark.parametrize("program", ["prefill", "step"])
def test_devices_only_add_up(found, program):
    """An all-reduce where a layer writes to the residual stream; no weight or cache ever moves."""
    assert found[program] == ["all-reduce"]


def test_every_leaf_has_a_finite_gradient(found):
    assert found["finite"] and found["moving"] > 0


def test_meshes_that_do_not_fit_are_refused(found):
    devices, odd = found["refusals"]
    assert "train.mesh is [2, 4], which needs 8 devices; 4 found" in devices
    assert "axis of 33, which does not divide over" in odd and "use a smaller second number in train.mesh" in odd
