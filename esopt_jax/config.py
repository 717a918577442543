"""The single schema of a run: frozen dataclasses, what their values may be, and their written form."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class ModelConfig:
    """`path`: a Hugging Face folder, or `builtin:NAME` for a model shipped in the package. `dtype`: compute type."""

    path: str = "builtin:sudoku-4x4"
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class ESConfig:
    """The optimiser. `sigma_end` and `alpha_end` of None mean the start value; `members_per_pass` 0 means all.

    `population_size` counts all members, also when `antithetic`. `control` replaces learning by a null experiment:
    `shuffled_rewards` permutes the fitness over members, `zero_update` leaves the weights alone. `scope` says which
    weights are tuned: all of them; the history's header records it.
    """

    seed: int = 0
    population_size: int = 32
    generations: int = 100
    sigma: float = 1e-3
    sigma_end: float | None = None
    sigma_schedule: Schedule = "constant"
    sigma_warmup: int = 0
    alpha: float = 5e-4
    alpha_end: float | None = None
    alpha_schedule: Schedule = "constant"
    alpha_warmup: int = 0
    shaping: Literal["zscore", "centered_rank", "none"] = "zscore"
    center_cases: bool = False
    plan: Literal["full", "low_rank"] = "full"
    rank: int = 4
    antithetic: bool = False
    members_per_pass: int = 0
    master: Literal["float32", "split", "bfloat16"] = "float32"
    rounding: Literal["nearest", "stochastic"] = "nearest"
    scope: Literal["full"] = "full"
    sigma_multipliers: dict[str, float] = field(default_factory=dict)
    control: Literal["none", "shuffled_rewards", "zero_update"] = "none"


@dataclass(frozen=True)
class RolloutConfig:
    """How a member plays. `cases` is the number of tasks a generation draws, the same for every member.

    `presence_penalty_scope`: `generated` counts the completion's tokens only (vLLM, OpenAI); `all` counts the prompt's
    too, as the published runs did. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 are off.
    """

    cases: int = 32
    episodes_per_case: int = 1
    max_turns: int = 100
    max_new_tokens: int = 64
    max_prompt_tokens: int = 1024
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty_scope: Literal["generated", "all"] = "generated"
    thinking: bool = False
    common_random_numbers: bool = True
    step_timeout_s: float = 60.0
    step_retries: int = 1
    workers: int = 8


@dataclass(frozen=True)
class EnvConfig:
    """`name`: a registered environment, `package.module:factory` or `file.py:factory`; `options` go to the factory."""

    name: str = "sudoku"
    prompt: str = "published"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EvalConfig:
    """Held-out evaluation. `every` 0 evaluates before and after only.

    `episodes` counts tasks, each played `repeats` times, `rows` of them at once (0: all).
    `by_sampling` also scores base and final at T 0.7 / top-p 0.8 and greedily; `best_random` is the best of N
    single perturbations, found with a tenth of the training episodes.
    """

    seed: int = 12345
    every: int = 10
    repeats: int = 3
    episodes: int = 32
    rows: int = 0
    by_sampling: bool = False
    best_random: bool = False


@dataclass(frozen=True)
class TrainConfig:
    """Where and how the programs run. `mesh` is (member, model).

    A checkpoint is written every `checkpoint_every` generations (0: never; the history alone rebuilds the weights) and
    the last `keep_checkpoints` are kept. `matmul_precision` is JAX's for float32 products on accelerators;
    `deterministic` asks XLA for GPU kernels whose results do not vary from run to run.
    """

    mesh: tuple[int, int] = (1, 1)
    checkpoint_every: int = 10
    keep_checkpoints: int = 2
    matmul_precision: Literal["default", "high", "highest"] = "default"
    deterministic: bool = False


@dataclass(frozen=True)
class LogConfig:
    """What a run leaves and shows. `trajectories`: which members' episodes are written each generation.

    `monitor` also sends every metrics row to a dashboard, which needs the extra of that name.
    """

    trajectories: Literal["best_worst", "all", "none"] = "best_worst"
    progress: Literal["auto", "rich", "plain", "none"] = "auto"
    monitor: Literal["none", "tensorboard", "trackio"] = "none"


@dataclass(frozen=True)
class Config:
    """Everything that defines a run."""

    preset: str = "custom"
    description: str = ""
    model: ModelConfig = field(default_factory=ModelConfig)
    es: ESConfig = field(default_factory=ESConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    log: LogConfig = field(default_factory=LogConfig)


# --- validation -------------------------------------------------------------------------------------------------------


def problems(config: Config) -> list[str]:
    """Everything that is wrong with the values of `config`, each with the fix; empty when it can run."""
    found: list[str] = []

    def check(ok: bool, key: str, allowed: str) -> None:
        if not ok:
            node: Any = config
            for name in key.split("."):
                node = getattr(node, name)
            found.append(f"{key} is {node!r}; it must be {allowed}")

    es, rollout, ev = config.es, config.rollout, config.eval
    check(bool(config.preset), "preset", "a name, since run folders are called after it")
    for section in ("es", "rollout", "eval", "train"):
        for name, value in vars(getattr(config, section)).items():
            if isinstance(value, int) and name != "seed":
                check(value < 2**31, f"{section}.{name}", "below 2^31")
    check(0 <= es.seed < 2**32, "es.seed", "in 0 .. 2^32-1")
    check(0 <= ev.seed < 2**32, "eval.seed", "in 0 .. 2^32-1")
    check(es.population_size >= 2, "es.population_size", "at least 2, since fitness is compared between members")
    check(es.generations >= 0, "es.generations", "0 or more")
    for name in ("sigma", "alpha"):
        start, end = getattr(es, name), getattr(es, f"{name}_end")
        check(_at_least_0(start), f"es.{name}", "a finite number, 0 or more")
        check(end is None or _at_least_0(end), f"es.{name}_end", "a finite number, 0 or more, or null")
        check(getattr(es, f"{name}_warmup") >= 0, f"es.{name}_warmup", "0 or more generations")
    if _at_least_0(es.sigma) and _at_least_0(es.alpha):
        check(es.sigma > 0 or es.alpha == 0, "es.sigma", "above 0 while es.alpha is not 0")
    alpha_end = es.alpha if es.alpha_end is None else es.alpha_end
    if es.sigma_end == 0 and (alpha_end != 0 or es.alpha_schedule == "constant") and es.alpha != 0:
        found.append(
            "es.sigma_end is 0 while alpha is not: the last update would be noise; end sigma above 0, or alpha at 0 too"
        )
    check(es.rank >= 1, "es.rank", "at least 1")
    check(
        0 <= es.members_per_pass <= max(es.population_size, 0),
        "es.members_per_pass",
        "0 (all) or 1 .. es.population_size",
    )
    if es.antithetic:
        check(es.population_size % 2 == 0, "es.population_size", "even when es.antithetic is true")
    for group, value in es.sigma_multipliers.items():
        if group not in ("matrix", "embedding", "norm", "gate", "conv") or not _at_least_0(value):
            found.append(
                f"es.sigma_multipliers.{group} is {value!r}; groups are conv, embedding, gate, matrix, norm, "
                "values 0 or more"
            )
    for name in ("cases", "episodes_per_case", "max_turns", "max_new_tokens", "max_prompt_tokens", "workers"):
        check(getattr(rollout, name) >= 1, f"rollout.{name}", "at least 1")
    check(_at_least_0(rollout.temperature), "rollout.temperature", "a finite number, 0 (greedy) or more")
    check(rollout.top_k >= 0, "rollout.top_k", "0 (off) or more")
    check(0 < rollout.top_p <= 1, "rollout.top_p", "above 0 and at most 1 (off)")
    check(0 <= rollout.min_p < 1, "rollout.min_p", "0 (off) or more and below 1")
    check(math.isfinite(rollout.presence_penalty), "rollout.presence_penalty", "a finite number")
    check(math.isfinite(rollout.frequency_penalty), "rollout.frequency_penalty", "a finite number")
    check(
        rollout.repetition_penalty > 0 and math.isfinite(rollout.repetition_penalty),
        "rollout.repetition_penalty",
        "above 0",
    )
    check(rollout.step_timeout_s > 0, "rollout.step_timeout_s", "above 0 seconds")
    check(rollout.step_retries >= 0, "rollout.step_retries", "0 or more")
    check(ev.every >= 0, "eval.every", "0 (before and after only) or more")
    check(ev.repeats >= 1, "eval.repeats", "at least 1")
    check(ev.episodes >= 1, "eval.episodes", "at least 1")
    check(ev.rows >= 0, "eval.rows", "0 (all at once) or more")
    check(min(config.train.mesh) >= 1, "train.mesh", "two positive numbers: (member, model)")
    check(config.train.checkpoint_every >= 0, "train.checkpoint_every", "0 (never) or more generations")
    check(config.train.keep_checkpoints >= 1, "train.keep_checkpoints", "at least 1")
    return found


def _at_least_0(x: float) -> bool:
    return math.isfinite(x) and x >= 0


# --- writing ----------------------------------------------------------------------------------------------------------


def to_dict(config: Config) -> dict[str, Any]:
    """Plain nested dict of every key, ready for YAML and JSON."""
    tree: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return tree


def to_yaml(config: Config) -> str:
    """The resolved config as YAML; `load_config` reads it back to an equal `Config`."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


INCIDENTAL = (
    "preset",
    "description",
    "log",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "rollout.workers",
    "rollout.step_timeout_s",
    "rollout.step_retries",
)
"""Keys and sections that decide how a run is kept, shown and served, not what it computes."""


def config_hash(config: Config) -> str:
    """16 hex digits over every key that can change the result: all but those of `INCIDENTAL`."""
    tree = to_dict(config)
    for key in INCIDENTAL:
        section, _, name = key.rpartition(".")
        del (tree[section] if section else tree)[name]
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
