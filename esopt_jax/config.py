"""The single schema of a run: frozen dataclasses and their written form. `config_problems` says what is allowed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

Schedule = Literal["constant", "linear", "cosine"]
Method = Literal["es", "grpo", "randopt"]


@dataclass(frozen=True)
class ModelConfig:
    """The base model, and `dtype`, the compute type.

    `path`: a Hugging Face folder, `ORG/NAME` or `ORG/NAME@REVISION` of the hub, or `builtin:NAME`, one in the package.
    """

    path: str = "builtin:sudoku-4x4"
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class ESConfig:
    """The optimiser. `sigma_end` and `alpha_end` of None mean the start value; `members_per_pass` 0 means all.

    `population_size` counts all members, also when `antithetic`. `control` replaces learning by a null experiment:
    `shuffled_rewards` permutes the fitness over members, `zero_update` leaves the weights alone. `scope` says which
    weights are tuned: `full`, all of them; `all_linear`, the projections alone; `pattern:REGEX`, the leaves in whose
    path the expression is found; `lora:RANK` and `lora:RANK:REGEX`, low-rank adapters beside the projections or beside
    the matrices so named, merged into them on export. The others keep every bit. `anchor` pulls the weights this share
    of their way back to the start after each update. The history's header records all of it.
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
    scope: str = "full"
    sigma_multipliers: dict[str, float] = field(default_factory=dict)
    control: Literal["none", "shuffled_rewards", "zero_update"] = "none"
    anchor: float = 0.0


@dataclass(frozen=True)
class GRPOConfig:
    """Group-relative policy optimisation, where `method` is `grpo`; `es.generations` counts its steps, `es.seed` seeds.

    A step plays `rollout.cases` tasks `group_size` times each, `rollout.slots` episodes at once. Replies are then
    learned from once, in `batches` optimiser steps of equal size, with gradients of `micro_batch` conversations at a
    time. `average` gives every reply the same weight (`sequence`) or every token; `scaled` divides advantages by the
    spread of their group. A likelihood ratio counts within `1 - clip_low .. 1 + clip_high`; `beta` weighs the
    divergence from the start. `log_probs`: `sampled`, of the distribution that was sampled from; `raw`, of the logits
    alone, as in the published baseline. AdamW has the learning rate `lr`, reached over `warmup` steps; gradients
    longer than `max_norm` are shortened to it (0: never). `remat` computes the inside of layers twice to save memory.
    """

    group_size: int = 8
    batches: int = 1
    micro_batch: int = 32
    average: Literal["sequence", "token"] = "sequence"
    scaled: bool = True
    clip_low: float = 0.2
    clip_high: float = 0.2
    beta: float = 1e-3
    log_probs: Literal["sampled", "raw"] = "sampled"
    lr: float = 1e-6
    warmup: int = 0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    max_norm: float = 1.0
    remat: bool = True


@dataclass(frozen=True)
class RandOptConfig:
    """Where `method` is `randopt`: how many of the best perturbations also vote on every action (0 or 1: none)."""

    voters: int = 5


@dataclass(frozen=True)
class RolloutConfig:
    """How a member plays. `cases` is the number of tasks a generation draws, the same for every member.

    A member plays `slots` episodes at once (0: all); one that ends makes room for the next. Replies are written in
    pieces of `segment` tokens, between which rows that have replied leave and rows that are ready join (0: all rows
    wait for each other). Neither changes what is played.

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
    slots: int = 0
    segment: int = 0
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
    """Where and how the programs run.

    `mesh` is (groups, devices of a group): a group holds one model, split over its devices, and plays its share of the
    members. Several processes share the groups.

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

    `monitor` also sends every metrics row to a dashboard, which needs the extra of that name. `drift_every` measures
    how far weights and answers are from the start every so many generations (0: never).
    """

    trajectories: Literal["best_worst", "all", "none"] = "best_worst"
    progress: Literal["auto", "rich", "plain", "none"] = "auto"
    monitor: Literal["none", "tensorboard", "trackio"] = "none"
    drift_every: int = 0


@dataclass(frozen=True)
class Config:
    """Everything that defines a run.

    `method`: `es`, evolution strategies; `grpo`, the gradient baseline; or `randopt`, the best of all perturbations.
    """

    preset: str = "custom"
    description: str = ""
    method: Method = "es"
    model: ModelConfig = field(default_factory=ModelConfig)
    es: ESConfig = field(default_factory=ESConfig)
    grpo: GRPOConfig = field(default_factory=GRPOConfig)
    randopt: RandOptConfig = field(default_factory=RandOptConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    log: LogConfig = field(default_factory=LogConfig)


def to_dict(config: Config) -> dict[str, Any]:
    """Plain nested dict of every key, ready for YAML and JSON."""
    tree: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return tree


def to_yaml(config: Config) -> str:
    """The resolved config as YAML; `load_config` reads it back to an equal `Config`."""
    return yaml.safe_dump(to_dict(config), sort_keys=False)


INCIDENTAL = (
    "preset",
    "description",
    "log",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "rollout.segment",
    "rollout.workers",
    "rollout.step_timeout_s",
    "rollout.step_retries",
)
"""Keys and sections that decide how a run is kept, shown and served, not what it computes."""


LATER: dict[str, Any] = {
    "rollout.slots": 0,
    "es.anchor": 0.0,
    "method": "es",
    "grpo": dataclasses.asdict(GRPOConfig()),
    "randopt": dataclasses.asdict(RandOptConfig()),
}
"""Keys and sections that came after runs had been recorded, with the value that these were made with."""


def config_hash(config: Config) -> str:
    """16 hex digits over every key that can change the result: all but `INCIDENTAL`, and `LATER` ones as they were."""
    tree = to_dict(config)
    for key in (*INCIDENTAL, *LATER):
        section, _, name = key.rpartition(".")
        where = tree[section] if section else tree
        if key in INCIDENTAL or where[name] == LATER[key]:
            del where[name]
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
