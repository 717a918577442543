"""What compiled programs say of themselves is what was computed; on one device."""

from __future__ import annotations

import json

import pytest

from esopt_jax.config_reader import from_dict
from esopt_jax.models.load import find_architecture
from esopt_jax.training.plan import disagreements, make_plan
from esopt_jax.training.plan_bytes import population_footprint
from esopt_jax.training.plan_noise import noise_programs
from esopt_jax.training.plan_programs import decode_program
from esopt_jax.training.plan_sizing import sizing_of

ARCH = {
    "model_type": "qwen3_5_text",
    "vocab_size": 96,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 8,
    "full_attention_interval": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
}


@pytest.fixture
def config(tmp_path):
    """`config(es=..., ...)` of a model that has a `config.json` and no weights."""
    (tmp_path / "config.json").write_text(json.dumps(ARCH))

    def make(dtype="bfloat16", **sections):
        tree = {
            "model": {"path": str(tmp_path), "dtype": dtype},
            "es": {"population_size": 4, "members_per_pass": 2} | sections.get("es", {}),
            "rollout": {"cases": 3, "max_prompt_tokens": 32, "max_new_tokens": 8} | sections.get("rollout", {}),
        }
        return from_dict(tree)

    return make


@pytest.mark.parametrize(
    ("dtype", "es", "rollout"),
    [
        ("bfloat16", {"master": "split"}, {"top_k": 4, "presence_penalty": 1.5}),
        ("bfloat16", {"master": "split", "plan": "low_rank", "rank": 2}, {}),
        ("float32", {"master": "float32", "scope": "lora:2"}, {}),
        ("float32", {"master": "bfloat16", "rounding": "stochastic", "antithetic": True}, {}),
    ],
    ids=["split", "low_rank", "lora", "bfloat16"],
)
def test_compiled_programs_hold_what_was_computed(config, dtype, es, rollout):
    plan = make_plan(config(dtype, es=es, rollout=rollout), device_memory=2**30)
    assert plan["compiled"]["disagreements"] == []
    assert not any(count for counts in plan["collectives"].values() for count in counts.values())
    assert plan["flops_per_device"]["decode_step"] > 2 * 6 * 8 * 24 * 32  # at least one product of each layer


def test_bytes_that_are_computed_wrongly_are_seen(config):
    sizing = sizing_of(find_architecture(config().model.path), config(es={"master": "split"}))
    other = sizing_of(sizing.arch, config(es={"master": "split"}, rollout={"max_prompt_tokens": 4096}))
    members, update = noise_programs(sizing)
    found = disagreements(other, population_footprint(other), decode_program(sizing, whole=True), members, update)
    assert [line.partition(":")[0] for line in found] == [
        "arguments of the decode",
        "rows that the decode updates in place",
    ]


def test_two_periods_of_layers_tell_the_rest(config):
    sizing = sizing_of(find_architecture(config().model.path), config(es={"master": "split"}))
    short, whole = decode_program(sizing), decode_program(sizing, whole=True)
    assert (short.arguments, short.aliases, short.outputs) == (whole.arguments, whole.aliases, whole.outputs)
    assert short.collectives == whole.collectives and short.flops == pytest.approx(whole.flops, rel=1e-4)
