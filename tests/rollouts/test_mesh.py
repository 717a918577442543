"""Members spread over devices, or over groups of them, play what they play on one. Each test forces 4 devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = r"""
import dataclasses, json, sys, tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp
from conftest import make_model, make_tokenizer
from test_population import ES, ROLLOUT, SEED, SIGMA, Talk
from esopt_jax.core.master import base_view, make_master
from esopt_jax.models.lora import with_adapters
from esopt_jax.models.sharding import leaf_sharding, make_mesh, member_groups
from esopt_jax.rollouts.chat import load_chat
from esopt_jax.rollouts.engine import make_engine
from esopt_jax.rollouts.population import make_stage, rollout_model, rollout_population
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.rollouts.workers import StepPool

(plan, scope), found = sys.argv[2:], {}
folder = Path(tempfile.mkdtemp())
make_tokenizer(folder)
model, chat = with_adapters(make_model(folder, delta_heads=(2, 4)), scope, seed=0), load_chat(folder, thinking=False)
environment = Talk()
cases = list(enumerate(environment.tasks("train")))[:3]
sampling = make_sampling(ROLLOUT)

def spoken(episodes):
    return [[turn.completion_ids for turn in episode.turns] for episode in episodes]

meshes = {"one": None, "four": make_mesh((4, 1)), "groups": make_mesh((2, 2))}
for name, per_pass in (("one", 2), ("four", 7), ("groups", 3)):  # 7 is rounded up: 2 members a device
    mesh = meshes[name]
    home = (*member_groups(mesh), mesh)[0] if mesh else None
    place = (lambda spec: None) if mesh is None else lambda spec: leaf_sharding(spec, home)
    params = {spec.path: jax.device_put(model.params[spec.path], place(spec)) for spec in model.specs}
    master = make_master(params, specs=model.specs, format="float32")
    base = base_view(master, specs=model.specs, dtype=jnp.float32)
    engine = make_engine(model, chat, rollout=ROLLOUT, dtype=jnp.float32, mesh=mesh)
    es = dataclasses.replace(ES, population_size=8, members_per_pass=per_pass, plan=plan, scope=scope)
    pool = StepPool(workers=2, timeout_s=20, retries=0)
    stage = make_stage(engine, model, environment, chat, pool, rollout=ROLLOUT, es=es)
    episodes = rollout_population(
        stage, master, cases, seed=SEED, generation=0, sigma=SIGMA, members=range(8), sampling=sampling
    )
    found[name] = [spoken(row) for row in episodes]
    if plan == "full":
        found[name + "_model"] = spoken(rollout_model(stage, base, cases, seed=1, sampling=sampling, rows=1, repeats=2))
    found[name + "_passes"] = stage.members_per_pass
states = engine.each(lambda _: engine.new((1, 1), False))
found["homes"] = [
    [sorted(device.id for device in jax.tree.leaves(tree)[0].devices()) for tree in trees]
    for trees in (engine.spread(master), states)
]
found["devices"] = jax.device_count()
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("plan", "scope"),
    [
        ("full", "full"),
        ("full", "all_linear"),
        pytest.param("full", "lora:2", marks=pytest.mark.slow),
        pytest.param("low_rank", "full", marks=pytest.mark.slow),
    ],
)
def test_four_devices_give_the_tokens_of_one(plan, scope):
    """Members spread over four devices, or over two groups of two that split the model between them.

    All have 2 members x 3 cases in a program. On (4, 1) it is that of one device, so the tokens must be equal. On
    (2, 2) sums over a layer's width are added up in halves, which changes last bits: no token here hangs on them.
    """
    flags = " --xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"  # halves the compile time
    flags = os.environ.get("XLA_FLAGS", "") + flags
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, os.path.dirname(__file__), plan, scope],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] == 4
    assert found["homes"] == [[[0, 1], [2, 3]]] * 2
    assert (found["four_passes"], found["groups_passes"]) == (8, 4)
    for name in ("four", "groups"):
        assert found[name] == found["one"]
        if plan == "full":
            assert found[name + "_model"] == found["one_model"]
