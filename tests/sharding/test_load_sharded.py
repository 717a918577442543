"""Each device of a mesh reads its own part of a checkpoint. Runs in a process of its own, which forces four devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = r"""
import json, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import jax, ml_dtypes, numpy as np
from model_shards import file_bytes, other_parts, spelled, write_shards
from esopt_jax.config import ESConfig
from esopt_jax.core.digest import digest
from esopt_jax.models import stored_params
from esopt_jax.models.registry import parse_architecture
from esopt_jax.models.layout import by_tensor, tensor_shape
from esopt_jax.models.load import load_model, open_model
from esopt_jax.models.save import save_params
from esopt_jax.models.sharding import leaf_sharding, make_mesh
from esopt_jax.models.registry import leaf_specs
from esopt_jax.training.restore import base_master

config = dict(
    model_type="qwen3_5_text", vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
    layer_types=["linear_attention", "full_attention"], num_attention_heads=8, num_key_value_heads=4, head_dim=8,
    linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=6, linear_value_head_dim=10,
    linear_conv_kernel_dim=4, rms_norm_eps=1e-6, hidden_act="silu", tie_word_embeddings=False, initializer_range=0.02,
    rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5),
)
folder = Path(sys.argv[2]) / "model"
folder.mkdir()
(folder / "config.json").write_text(json.dumps(config))
rng = np.random.default_rng(0)
tensors = {
    name: rng.standard_normal(tensor_shape(leaves)).astype(ml_dtypes.bfloat16)
    for name, leaves in by_tensor(leaf_specs(parse_architecture(config))).items()
}
write_shards(folder, spelled(tensors, "multimodal") | other_parts(), 3)
whole = load_model(folder).params
read = []
copied = stored_params._copied

def counted(part, axis, dtype):
    read.append(part.size)
    return copied(part, axis, dtype)

stored_params._copied = counted
found = {"devices": jax.device_count(), "elements": sum(leaf.size for leaf in whole.values())}
for shape in ((1, 4), (2, 2), (4, 1)):
    mesh, name = make_mesh(shape), f"{shape[0]}x{shape[1]}"
    read.clear()
    model = load_model(folder, mesh)
    found[name] = {
        "equal": all((np.asarray(leaf) == np.asarray(whole[path])).all() for path, leaf in model.params.items()),
        "placed": all(model.params[s.path].sharding == leaf_sharding(s, mesh) for s in model.specs),
        "read": sum(read),
    }
    lazy = open_model(folder, mesh)
    master = base_master(lazy, ESConfig(master="split"))
    with jax.set_mesh(mesh):
        mark = digest(master)
    found[name]["digest"] = mark == digest(base_master(open_model(folder), ESConfig(master="split")))
    hi = master["layers.0.mlp.up_proj.weight"].hi
    found[name]["kept"] = hi.sharding == leaf_sharding(next(s for s in model.specs if "up_proj" in s.path), mesh)
    out = Path(sys.argv[2]) / name
    save_params(out, master, lazy)
    found[name]["saved"] = file_bytes(out) == file_bytes(folder)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    tests = os.path.dirname(os.path.dirname(__file__))
    command = [sys.executable, "-W", "error", "-c", SCRIPT, tests, str(tmp_path_factory.mktemp("sharded"))]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["devices"] == 4
    return found


@pytest.mark.parametrize("mesh", ["1x4", "2x2", "4x1"])
def test_every_device_reads_its_part_and_the_model_is_whole(found, mesh):
    result = found[mesh]
    assert result["equal"] and result["placed"]
    assert result["read"] == found["elements"]  # nothing twice, whoever shares a part


@pytest.mark.parametrize("mesh", ["1x4", "2x2", "4x1"])
def test_a_master_stays_where_its_leaves_are_and_is_written_back(found, mesh):
    assert found[mesh]["digest"] and found[mesh]["kept"] and found[mesh]["saved"]
