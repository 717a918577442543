"""A small model with every kind of leaf, drawn so that no weight is constant, and folders to load it from."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.models.architecture import Architecture
from esopt_jax.models.layout import join_tensors
from esopt_jax.models.load import Model
from esopt_jax.models.registry import leaf_specs, parse_architecture
from esopt_jax.types import Specs

CONFIG = {
    "model_type": "qwen3_5_text",
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 3,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "eos_token_id": 3,
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "attention_bias": False,
    "mlp_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {  # short, so that the texts of the tests meet all three kinds of frequency
        "rope_type": "llama3",
        "rope_theta": 100.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "eos_token_id": 3,
}
FAMILIES = {"qwen": CONFIG, "llama": LLAMA}


def draw(specs: Specs) -> dict[str, np.ndarray]:
    """Random leaves; gains that multiply as they are lie around 1, or little would reach the logits."""
    rng = np.random.default_rng(0)
    around = {spec.path: 1.0 if (spec.group, spec.init) == ("norm", "ones") else 0.0 for spec in specs}
    return {s.path: (around[s.path] + 0.3 * rng.standard_normal(s.shape)).astype(np.float32) for s in specs}


@pytest.fixture
def config() -> dict[str, Any]:
    """A copy to change."""
    return copy.deepcopy(CONFIG)


@pytest.fixture
def llama_config() -> dict[str, Any]:
    """A copy to change."""
    return copy.deepcopy(LLAMA)


@pytest.fixture(scope="session")
def arch() -> Architecture:
    return parse_architecture(CONFIG)


@pytest.fixture(scope="session", params=FAMILIES)
def tiny(request: pytest.FixtureRequest) -> Model:
    """A model of each family."""
    arch = parse_architecture(FAMILIES[request.param])
    specs = leaf_specs(arch)
    params = {path: jnp.asarray(leaf) for path, leaf in draw(specs).items()}
    return Model(arch, specs, params, {}, None, (), arch.vocab_size, Path())


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(config, tensors=...)` -> a model folder; `tensors` default to weights that fit."""

    def folder_of(config: dict[str, Any], tensors: dict[str, np.ndarray] | None = None) -> Path:
        from safetensors.numpy import save_file

        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        save_file(fitting(config) if tensors is None else tensors, folder / "model.safetensors")
        return folder

    return folder_of


@pytest.fixture
def tensors(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The file's tensors of a model of `config`."""
    return fitting(config)


def fitting(config: dict[str, Any]) -> dict[str, np.ndarray]:
    specs = leaf_specs(parse_architecture(config))
    return join_tensors(draw(specs), specs)
