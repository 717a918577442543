"""The programs of a plan on devices that hold a model together: what they exchange, and that work falls as 1/D.

Runs in a process of its own with forced devices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

ARCH = {
    "model_type": "qwen3_5_text",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "full_attention_interval": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
}
SCRIPT = r"""
import dataclasses, json, sys
from pathlib import Path
from esopt_jax.config_reader import from_dict
from esopt_jax.models.load import find_architecture
from esopt_jax.training.plan import make_plan
from esopt_jax.training.plan_programs import decode_program
from esopt_jax.training.plan_sizing import sizing_of

arch, es, folder = json.loads(sys.argv[1])
Path(folder, "config.json").write_text(json.dumps(arch))

def config(mesh):
    rollout = dict(cases=4, max_prompt_tokens=32, max_new_tokens=8, top_k=5, top_p=0.9, presence_penalty=1.5)
    es_of = dict(population_size=8, members_per_pass=4, master="split") | es
    tree = dict(model=dict(path=folder, dtype="bfloat16"), es=es_of, rollout=rollout, train=dict(mesh=mesh))
    return from_dict(tree)

def decode(mesh, whole=False):
    sizing = sizing_of(find_architecture(folder), config(mesh))
    found = decode_program(sizing, whole=whole)
    return dataclasses.asdict(found) | dict(work=found.flops * sizing.passes)

meshes = [[1, 1], [1, 2], [1, 4], [2, 2], [4, 1]]
found = dict(
    plan=make_plan(config([1, 4]), device_memory=2**30),
    decode={str(mesh): decode(mesh) for mesh in meshes},
    whole=decode([1, 4], True),
)
print(json.dumps(found))
"""
CASES = {
    "full": ({}, {}),
    "low_rank": ({}, {"plan": "low_rank", "rank": 2}),
    "uneven": ({"num_key_value_heads": 2}, {}),
}


@pytest.fixture(scope="module", params=["full", *(pytest.param(c, marks=pytest.mark.slow) for c in list(CASES)[1:])])
def found(request, tmp_path_factory):
    arch, es = CASES[request.param]
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    arguments = json.dumps([ARCH | arch, es, str(tmp_path_factory.mktemp("model"))])
    command = [sys.executable, "-c", SCRIPT, arguments]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout) | {"name": request.param}


def test_bytes_are_those_of_the_compiled_programs(found):
    assert found["plan"]["compiled"]["disagreements"] == []


def test_devices_only_add_up(found):
    """All-reduces where a layer writes to the residual stream, in the sampler and for the sums of an update."""
    programs = {**found["plan"]["collectives"], **{mesh: d["collectives"] for mesh, d in found["decode"].items()}}
    for name, counts in programs.items():
        exchanged = {kind for kind, count in counts.items() if count}
        assert exchanged == (set() if name in ("[1, 1]", "[4, 1]") else {"all-reduce"}), name
        assert "all-gather" in counts


def test_work_falls_as_devices_are_added(found):
    work = {mesh: decode["work"] for mesh, decode in found["decode"].items()}
    for mesh, devices in (("[1, 2]", 2), ("[1, 4]", 4), ("[2, 2]", 4), ("[4, 1]", 4)):
        share = work[mesh] * devices / work["[1, 1]"]
        assert 0.99 < share < (1.8 if found["name"] == "uneven" else 1.15), mesh


def test_two_periods_of_layers_tell_the_rest(found):
    short, whole = found["decode"]["[1, 4]"], found["whole"]
    for key in ("arguments", "aliases", "outputs", "collectives"):
        assert short[key] == whole[key]
    assert short["flops"] == pytest.approx(whole["flops"], rel=1e-4)
