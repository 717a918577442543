"""Whether a run fits into a device, and which keys of its config make it fit. Every piece of advice has been tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from esopt_jax.config import Config, to_dict
from esopt_jax.config_reader import from_dict
from esopt_jax.errors import EsoptError
from esopt_jax.models.architecture import Architecture
from esopt_jax.training.plan_bytes import Footprint, evaluation_footprint, population_footprint
from esopt_jax.training.plan_sizing import Sizing, sizing_of

Changes = dict[str, Any]
"""Keys of a config and their values."""

SHORTEST_PROMPT = 256
"""No advice shortens prompts further: an agent must be told its task."""

MORE_DEVICES = 8
"""How many times as many devices advice asks for at most."""


def fits(sizing: Sizing, device_memory: float) -> bool:
    """Whether members and evaluations both fit."""
    return max(population_footprint(sizing).total, evaluation_footprint(sizing).total) <= device_memory


def shortfall(sizing: Sizing, device_memory: float) -> str:
    """Why it does not fit, in one line."""
    population, evaluation = population_footprint(sizing), evaluation_footprint(sizing)
    what, most = max((("a pass", population), ("an evaluation", evaluation)), key=lambda pair: pair[1].total)
    return f"{what} needs {readable(most.total)} a device ({_parts(most)}); {readable(device_memory)} may be used"


def readable(n_bytes: float) -> str:
    """A size in GiB, or in MiB where that is less than one.

    Example:
        >>> readable(3 * 2**30), readable(2**19)
        ('3.0 GiB', '0.5 MiB')
    """
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"


def advice(arch: Architecture, config: Config, device_memory: float) -> list[str]:
    """Changes after each of which the run fits, the gentlest first: `--set` options, and what is then needed.

    What members compute does not depend on how many play at once, so that is tried first and with everything else.
    """
    found = []
    for remark, steps in _knobs(config):
        tried = (_reduced(arch, config, changes, device_memory) for changes in steps)
        if (first := next((settings for settings in tried if settings is not None), None)) is not None:
            settings, total = first
            words = " ".join(f"--set {key}={_value(value)}" for key, value in settings.items())
            found.append(f"{words} ({readable(total)}{remark})")
    return found or [
        "no change of members_per_pass, mesh, master, prompts or plan makes it fit, on up to "
        f"{MORE_DEVICES} times as many devices; use a smaller model or devices with more memory"
    ]


def _knobs(config: Config) -> Iterator[tuple[str, list[Changes]]]:
    """What could change, with what it means: steps of one kind, of which the first that fits is enough."""
    es, dtype, (groups, width) = config.es, config.model.dtype, config.train.mesh
    devices = groups * width
    wider: list[Changes] = [
        {"train.mesh": [devices // n, n]} for n in range(width + 1, devices + 1) if devices % n == 0 and n % width == 0
    ]
    yield "", [{}]
    yield ", the model split over more of the devices", wider
    if dtype == "float32":
        yield ", bfloat16 compute", [{"model.dtype": "bfloat16", "es.master": "split"}]
    elif es.master == "float32":
        yield ", the same precision", [{"es.master": "split"}]
    if es.master != "bfloat16":
        small: Changes = {"es.master": "bfloat16", "es.rounding": "stochastic"}
        small |= {} if dtype == "bfloat16" else {"model.dtype": "bfloat16"}
        yield ", weights of 8 bits of precision", [small, *({**change, **small} for change in wider)]
    shorter = [config.rollout.max_prompt_tokens >> n for n in range(1, 32)]
    yield ", shorter prompts", [{"rollout.max_prompt_tokens": n} for n in shorter if n >= SHORTEST_PROMPT]
    if es.plan == "full":
        yield ", low-rank noise: another algorithm", [{"es.plan": "low_rank"}]
    times = [2**n for n in range(1, MORE_DEVICES.bit_length())]
    yield ", with more devices", [{"train.mesh": [groups, width * n]} for n in times]


def _reduced(arch: Architecture, config: Config, changes: Changes, device_memory: float) -> tuple[Changes, int] | None:
    """The changes, with as many members at once and rows of evaluations as fit, and its bytes; or None."""
    try:
        base = _sized(arch, config, changes)
        groups = base.config.train.mesh[0]
        members = _most(
            base.members,
            lambda n: population_footprint(_sized(arch, config, {**changes, "es.members_per_pass": n * groups})).total,
            device_memory,
        )
        rows = _most(
            base.evaluated,
            lambda n: evaluation_footprint(_sized(arch, config, {**changes, "eval.rows": n * groups})).total,
            device_memory,
        )
    except EsoptError:  # the model does not divide over that mesh
        return None
    if members is None or rows is None:
        return None
    settings = dict(changes)
    if members[0] < base.members:
        settings["es.members_per_pass"] = members[0] * groups
    if rows[0] < base.evaluated:
        settings["eval.rows"] = rows[0] * groups
    return settings, max(members[1], rows[1])


def _most(start: int, total: Any, device_memory: float) -> tuple[int, int] | None:
    """The first of `start`, half of it, ... 1 whose total fits, and that total."""
    count = start
    while count:
        if (needed := total(count)) <= device_memory:
            return count, needed
        count //= 2
    return None


def _sized(arch: Architecture, config: Config, changes: Changes) -> Sizing:
    tree = to_dict(config)
    for key, value in changes.items():
        section, _, name = key.partition(".")
        tree[section][name] = value
    population = tree["es"]["population_size"]
    tree["es"]["members_per_pass"] = min(tree["es"]["members_per_pass"], population)
    return sizing_of(arch, from_dict(tree))


def _value(value: Any) -> str:
    return str(value).replace(" ", "")


def _parts(footprint: Footprint) -> str:
    parts = asdict(footprint).items()
    return ", ".join(f"{name} {readable(size)}" for name, size in parts if size)
