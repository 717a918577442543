"""Members spread over 4 devices play what they play on one. Runs in processes of its own, which force the devices."""

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
from esopt_jax.errors import EsoptError
from esopt_jax.models.lora import with_adapters
from esopt_jax.models.sharding import make_mesh, shard_params
from esopt_jax.rollouts.chat import load_chat
from esopt_jax.rollouts.engine import make_engine
from esopt_jax.rollouts.population import make_stage, rollout_model, rollout_population
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.rollouts.workers import StepPool

(plan, scope), found = sys.argv[2:], {}
folder = Path(tempfile.mkdtemp())
make_tokenizer(folder)
model, chat = with_adapters(make_model(folder), scope, seed=0), load_chat(folder, thinking=False)
environment = Talk()
cases = list(enumerate(environment.tasks("train")))[:3]
sampling = make_sampling(ROLLOUT)

def spoken(episodes):
    return [[turn.completion_ids for turn in episode.turns] for episode in episodes]

for name, mesh, per_pass in (("one", None, 2), ("four", make_mesh((4, 1)), 7)):  # 7 is rounded up: 2 members a device
    params = model.params if mesh is None else shard_params(model.params, model.specs, mesh)
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
found["passes"] = stage.members_per_pass
found["devices"] = jax.device_count()
try:
    make_engine(model, chat, rollout=ROLLOUT, dtype=jnp.float32, mesh=make_mesh((2, 2)))
except EsoptError as fault:
    found["refusal"] = str(fault)
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
    """Both have 2 members x 3 cases on a device, so the compiled programs are of one size and the tokens are equal."""
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
    assert found["passes"] == 8
    assert found["one"] == found["four"]
    if plan == "full":
        assert found["one_model"] == found["four_model"]
    assert "use [4, 1]" in found["refusal"]
