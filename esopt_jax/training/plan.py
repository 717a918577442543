"""What a run will need, before it is started: bytes on each device, work, collectives, and whether it fits.

Bytes are computed from shapes and placements (`plan_bytes`) and held against what the programs of the run say once they
are compiled for forced CPU devices (`plan_programs`). Scratch alone is an estimate (`plan_scratch`).
"""

from __future__ import annotations

from typing import Any

from esopt_jax.config import Config, to_dict
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import find_architecture
from esopt_jax.training.plan_advice import advice, fits, shortfall
from esopt_jax.training.plan_bytes import (
    Footprint,
    common_bytes,
    evaluation_footprint,
    master_bytes,
    population_footprint,
    tuned_master_bytes,
)
from esopt_jax.training.plan_noise import noise_programs
from esopt_jax.training.plan_programs import NOTHING, Found, decode_program
from esopt_jax.training.plan_sizing import Sizing, episodes_per_generation, sizing_of, tokens_per_generation

SCALARS = 64
"""Bytes by which the arguments of a decode may be more than weights and caches: thresholds of the sampler."""

TABLE = 16
"""Bytes a leaf by which the members that are made may be more: where each result lies."""


def make_plan(
    config: Config,
    *,
    device_memory: float,
    tokens_per_s: float | None = None,
    compiled: bool = True,
    whole: bool = False,
) -> dict[str, Any]:
    """The plan of a run, ready for JSON; nothing is trained, loaded or written.

    Args:
        config: of the run; its model needs no weights (`find_architecture`).
        device_memory: bytes of a device that a run may use.
        tokens_per_s: tokens that the whole mesh writes in a second, time to read prompts included, if that is known.
        compiled: compile the programs, for which there must be as many (CPU) devices as hold a model together; without
            them there are no collectives and no operations.
        whole: compile all layers (`plan_programs.decode_program`).

    Raises:
        EsoptError: the model is not known, or does not divide over the mesh.

    Example:
        >>> from esopt_jax.config_reader import load_config
        >>> plan = make_plan(load_config("smoke"), device_memory=2**30, compiled=False)
        >>> plan["parameters"], plan["episodes_per_generation"], plan["fits"]
        (85800, 32, True)
    """
    if config.method == "grpo":
        raise EsoptError("a run of method grpo cannot be planned: what its gradients need is not computed here")
    arch = find_architecture(config.model.path)
    sizing = sizing_of(arch, config)
    population, evaluation = population_footprint(sizing), evaluation_footprint(sizing)
    checkpoint, tokens = master_bytes(sizing, whole=True), tokens_per_generation(config)
    fit = fits(sizing, device_memory)
    return {
        "model": config.model.path,
        "mesh": list(config.train.mesh),
        "devices": config.train.mesh[0] * config.train.mesh[1],
        "parameters": sum(spec.size for spec in sizing.specs),
        "per_device_bytes": population.as_dict(),
        "evaluation_bytes": evaluation.as_dict(),
        "scratch_is": "computed from shapes, not measured",
        "device_memory_bytes": int(device_memory),
        "fits": fit,
        "reason": None if fit else shortfall(sizing, device_memory),
        "advice": [] if fit else advice(arch, config, device_memory),
        "rows_per_device": {"population": sizing.members * sizing.columns, "evaluation": sizing.evaluated},
        "passes": sizing.passes,
        "context_tokens": sizing.decode.capacity,
        "episodes_per_generation": episodes_per_generation(config),
        "tokens_per_generation": dict(tokens),
        "seconds_per_generation": tokens["written_at_most"] / tokens_per_s if tokens_per_s else None,
        "checkpoint_bytes": checkpoint,
        "checkpoints_kept_bytes": checkpoint * config.train.keep_checkpoints if config.train.checkpoint_every else 0,
        **(_compiled(sizing, population, whole) if compiled else {}),
        "config": to_dict(config),
    }


def _compiled(sizing: Sizing, population: Footprint, whole: bool) -> dict[str, Any]:
    """What only compiled programs can tell, and whether they agree with what was computed."""
    decode = decode_program(sizing, whole=whole)
    members, update = noise_programs(sizing)
    noise = NOTHING.combined(members).combined(update)
    rollout = sizing.config.rollout
    steps = sizing.passes * rollout.max_turns * (rollout.max_new_tokens + rollout.max_prompt_tokens)
    return {
        "collectives": {"decode": decode.collectives, "noise": noise.collectives},
        "flops_per_device": {"decode_step": decode.flops, "population_at_most": decode.flops * steps},
        "compiled": {
            "decode": _bytes(decode),
            "members": _bytes(members),
            "update": _bytes(update),
            "disagreements": disagreements(sizing, population, decode, members, update),
        },
    }


def disagreements(sizing: Sizing, population: Footprint, decode: Found, members: Found, update: Found) -> list[str]:
    """Where compiled programs hold other bytes than were computed; none, unless there is a fault here."""
    view = population.member + common_bytes(sizing)
    checks = [
        ("arguments of the decode", decode.arguments, view + population.caches, SCALARS),
        ("rows that the decode updates in place", decode.aliases, population.caches, 0),
        ("weights that the update writes in place", update.aliases, tuned_master_bytes(sizing), 0),
    ]
    if sizing.config.es.plan == "full":
        table = TABLE * len(sizing.specs)
        checks.append(("members that are made", members.outputs, population.member, table))
    return [
        f"{name}: {found} bytes compiled, {computed} computed"
        for name, found, computed, more in checks
        if not 0 <= found - computed <= more
    ]


def _bytes(found: Found) -> dict[str, int]:
    return {"argument_bytes": found.arguments, "alias_bytes": found.aliases, "output_bytes": found.outputs}
