"""Every mesh of four devices sees the noise, the logits and the updated weights that one device sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = r"""
import json, sys, tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp, numpy as np
from conftest import make_model, make_tokenizer
from esopt_jax.config import ESConfig, RolloutConfig
from esopt_jax.core.master import make_master, master_value
from esopt_jax.models.registry import score
from esopt_jax.models.sharding import leaf_sharding, make_mesh, member_groups
from esopt_jax.rollouts.chat import load_chat
from esopt_jax.rollouts.engine import by_member, make_engine
from esopt_jax.rollouts.policy import by_group
from esopt_jax.rollouts.population import make_stage
from esopt_jax.training.restore import run_update

folder = Path(tempfile.mkdtemp())
make_tokenizer(folder)
model, chat = make_model(folder, delta_heads=(4, 8)), load_chat(folder, thinking=False)
rng, es, rollout = np.random.default_rng(0), ESConfig(population_size=4), RolloutConfig(max_prompt_tokens=16)
coefficients = rng.standard_normal(4).astype(np.float32)
tokens = jnp.asarray(rng.integers(0, 100, (2, 12)))

def host(tree):
    return jax.tree.map(np.asarray, jax.device_get(tree))

@jax.jit
def logits_of(view):
    return score(view, tokens, jnp.full(2, 12), arch=model.arch)

def on(shape):
    mesh = make_mesh(shape)
    home = next(iter(member_groups(mesh)), None)
    params = {s.path: model.params[s.path] for s in model.specs}
    if home is not None:
        params = {s.path: jax.device_put(params[s.path], leaf_sharding(s, home)) for s in model.specs}
    master = make_master(params, specs=model.specs, format="float32")
    engine = make_engine(model, chat, rollout=rollout, dtype=jnp.float32, mesh=mesh)
    stage = make_stage(engine, model, None, chat, None, rollout=rollout, es=es)

    def members(_, master, ids):
        return stage.views(np.uint32(0), np.uint32(0), by_member(ids, engine.mesh), master, np.float32(0.02))

    ids = by_group(np.arange(4, dtype=np.int32), len(engine.groups))
    views = engine.each(members, engine.spread(master), ids)
    # Of every group, the logits of its first member; a mesh that splits no model computes as one device does.
    first = engine.each(lambda _, view: logits_of(jax.tree.map(lambda x: x[0], view)), views) if home else []
    parts = [host(view) for view in views]
    new, _ = run_update(model.specs, es)(0, 0, master, jnp.asarray(coefficients), 0.1)
    return {
        "members": {path: np.concatenate([part[path] for part in parts]) for path in parts[0]},
        "logits": [host(x) for x in first],
        "weights": host({path: master_value(leaf) for path, leaf in new.items()}),
        "cut": sum(not leaf.is_fully_replicated for leaf in jax.tree.leaves(new)),
    }

def off(ours, theirs):
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())

one = on((1, 1))
expected = [host(logits_of({path: leaf[i] for path, leaf in one["members"].items()})) for i in range(4)]
found = {"devices": jax.device_count(), "apart": off(expected[0], expected[2])}
for shape in ((1, 4), (2, 2), (4, 1)):
    ours = on(shape)
    found["x".join(map(str, shape))] = {
        "equal": all((ours["members"][path] == leaf).all() for path, leaf in one["members"].items()),
        "weights": max(off(ours["weights"][path], leaf) for path, leaf in one["weights"].items()),
        "logits": [off(x, expected[4 // shape[0] * group]) for group, x in enumerate(ours["logits"])],
        "cut": ours["cut"],
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    env = os.environ | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"}
    tests = os.path.join(os.path.dirname(os.path.dirname(__file__)), "rollouts")
    command = [sys.executable, "-W", "error", "-c", SCRIPT, tests]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["devices"] == 4 and found["apart"] > 0.01
    return found


@pytest.mark.parametrize("mesh", ["1x4", "2x2", "4x1"])
def test_members_are_those_of_one_device_to_the_bit(found, mesh):
    assert found[mesh]["equal"]


@pytest.mark.parametrize(("mesh", "groups"), [("1x4", 1), ("2x2", 2)])
def test_a_split_model_gives_the_logits_of_a_whole_one(found, mesh, groups):
    assert len(found[mesh]["logits"]) == groups and max(found[mesh]["logits"]) <= 1e-5


@pytest.mark.parametrize(("mesh", "split"), [("1x4", True), ("2x2", True), ("4x1", False)])
def test_updated_weights_are_the_same(found, mesh, split):
    assert found[mesh]["weights"] <= 1e-5
    assert (found[mesh]["cut"] > 10) is split
