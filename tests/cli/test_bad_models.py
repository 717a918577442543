"""Models that cannot be used, as a person meets them: one line that names the trouble, exit code 2, nothing written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from esopt_jax.cli.main import main
from esopt_jax.models.load import load_model

WEIGHTS = "model.safetensors"


def edit(path, change):
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def without_weights(model):
    (model / WEIGHTS).unlink()


def without_a_shard(model):
    tensors = load_file(model / WEIGHTS)
    names = sorted(tensors)
    (model / WEIGHTS).unlink()
    save_file({name: tensors[name] for name in names[::2]}, model / "model-00001-of-00002.safetensors")
    where = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def truncated(model):
    whole = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(whole[: len(whole) // 2])


def of_whole_numbers(model):
    save_file({name: leaf.astype(np.int32) for name, leaf in load_file(model / WEIGHTS).items()}, model / WEIGHTS)


def with_more_tokens_than_rows(model):
    edit(model / "tokenizer.json", lambda t: t["model"]["vocab"].update({f"<extra {i}>": 1000 + i for i in range(200)}))


def of_experts(model):
    edit(model / "config.json", lambda config: config.update(model_type="qwen3_5_moe_text", num_experts=8))


def of_another_shape(model):
    edit(model / "config.json", lambda config: config.update(intermediate_size=80))


def without_tokenizer(model):
    (model / "tokenizer.json").unlink()


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(load_model("builtin:sudoku-4x4").folder, tmp_path / "model")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_weights, "has no model.safetensors and no model.safetensors.index.json"),
        (without_a_shard, "model-00002-of-00002.safetensors"),
        (truncated, "model.safetensors"),
        (of_whole_numbers, "I32"),
        (with_more_tokens_than_rows, "tokens but the model only 128"),
        (of_experts, "qwen3_5_moe_text"),
        (of_another_shape, "mlp.down_proj.weight"),
        (without_tokenizer, "tokenizer.json"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_line(model, tmp_path, capsys, damage, message):
    damage(model)
    assert main(["train", "smoke", "--set", f"model.path={model}", "--run-dir", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("esopt: error: ") and message in line
    assert not (tmp_path / "run").exists()


def test_a_name_of_the_hub_without_a_network_is_one_line(tmp_path):
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "esopt_jax.cli.main", "train", "smoke", "--set", "model.path=Qwen/Qwen3.5-0.8B"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and "'Qwen/Qwen3.5-0.8B' is not in the local cache and cannot be downloaded" in line
    assert not (tmp_path / "runs").exists()
