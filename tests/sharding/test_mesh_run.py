"""A run whose model is split over two devices is the run of one, but for the last bits of sums over both.

Two groups of two devices that share the population are the run of one such group, to the bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = r"""
import json, logging, sys
from pathlib import Path
import jax, numpy as np
from esopt_jax import Run, generate, load_config, load_model, resume, train
from esopt_jax.core import layout
from esopt_jax.models.sharding import make_mesh
from esopt_jax.training.export import export_run
from esopt_jax.errors import EsoptError
from esopt_jax.training.moments import Moment

plan, place = sys.argv[1], Path(sys.argv[2])
if plan == "low_rank":
    layout.POOLED_LEAF = 2000  # so that this model, too, has leaves on both sides of it
keys = ["es.generations=2", "eval.episodes=8", "eval.every=0", "log.progress=none", f"es.plan={plan}", "es.rank=2"]
keys += ["rollout.top_k=20", "rollout.top_p=0.9"]

def config(mesh):
    return load_config("smoke", [*keys, f"train.mesh={list(mesh)}"])

one = train(config((1, 1)), place / "one")
two = train(config((1, 2)), place / "two")
groups = train(config((2, 2)), place / "groups")

def at(moment):
    if moment == Moment.BEFORE_APPLIED and (place / "killed" / "checkpoints" / "after_00001").exists():
        raise EsoptError("killed")

try:
    train(config((1, 2)), place / "killed", at=at)
except EsoptError:
    resumed = resume(place / "killed")
base = one.params(0)
ours, theirs = two.params(), one.params()
adapted = train(
    load_config("smoke", [*keys, "es.generations=1", "train.mesh=[1, 2]", "es.scope=lora:2"]), place / "adapted"
)
text = generate(load_model(place / "adapted" / "final", make_mesh((1, 2))), ["2"])
export_run(place / "adapted", place / "exported")
moved = max(float(np.abs(np.asarray(theirs[p]) - np.asarray(base[p])).max()) for p in base)
found = {
    "devices": jax.device_count(),
    "cut": sum(not leaf.is_fully_replicated for leaf in jax.tree.leaves(two.restore(1)[0].master)),
    "fitness": [[r.fitness.tolist() for r in run.history().records] for run in (one, two, groups)],
    "results": [[run.summary[k] for k in ("base", "final")] for run in (one, two, groups)],
    "off": max(float(np.abs(np.asarray(ours[p]) - np.asarray(theirs[p])).max()) for p in base) / moved,
    "alike": groups.summary["digest"] == two.summary["digest"],
    "verdicts": [run.replay().verdict for run in (two, groups)],
    "adapted": [adapted.summary["status"], len(text), (place / "exported" / "model.safetensors").exists()],
    "resumed": resumed.summary["digest"] == two.summary["digest"],
}
print(json.dumps(found))
"""


@pytest.mark.parametrize("plan", ["full", pytest.param("low_rank", marks=pytest.mark.slow)])
def test_two_devices_and_two_groups_of_two_train_as_one(plan, tmp_path):
    env = {**os.environ, "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", SCRIPT, plan, str(tmp_path)]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] == 4 and found["cut"] > 20
    assert found["fitness"] == [found["fitness"][0]] * 3 and found["results"] == [found["results"][0]] * 3
    assert found["off"] < 1e-5 and found["alike"]
    assert found["adapted"] == ["finished", 1, True]
    assert found["verdicts"] == ["equal", "equal"] and found["resumed"]
