"""The config of a search: one YAML file, read as those of training runs are."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from esopt_jax.config_problems import checker
from esopt_jax.config_reader import build, read_tree
from esopt_jax.errors import EsoptError
from esopt_jax.search.settings import EvolveConfig, SearchConfig, asked_for


@dataclass(frozen=True)
class TaskConfig:
    """What programs are written for.

    Attributes:
        name: of the task.
        size: of its instances; 0 for the published training size.
        split: which instances the search sees.
        workers: programs that are scored at once.
        cpu_s: processor time of a program over all instances.
        published: score as the published experiments do.
        unsafe: run programs without the sandbox.
    """

    name: str = "construct_kp"
    size: int = 0
    split: Literal["train", "val"] = "train"
    workers: int = 1
    cpu_s: float = 20.0
    published: bool = False
    unsafe: bool = False


@dataclass(frozen=True)
class WriterConfig:
    """Who writes the programs.

    Attributes:
        backend: a `model` of ours, an OpenAI-compatible `endpoint`, or the `scripted` one, which needs no model.
        model: path of the model as in `model.path` of training configs, or its name at the endpoint.
        base_url: of the endpoint, such as http://localhost:8000/v1.
        api_key_env: environment variable with the key of the endpoint; empty where it needs none.
        timeout_s: of a request to the endpoint.
        retries: of a request that the endpoint failed to answer.
        concurrency: requests at once.
        temperature: of the sampling.
        top_p: share of the probability that is sampled from.
        max_tokens: length of an answer.
        max_prompt_tokens: room for the prompt, of a `model`.
        rows: answers that a `model` writes at once; 0 for a batch.
        dtype: that a `model` computes in.
    """

    backend: Literal["model", "endpoint", "scripted"] = "model"
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    timeout_s: float = 120.0
    retries: int = 4
    concurrency: int = 8
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 768
    max_prompt_tokens: int = 2048
    rows: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class AhdConfig:
    """Everything that defines a search."""

    name: str = "custom"
    description: str = ""
    task: TaskConfig = field(default_factory=TaskConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    es: EvolveConfig = field(default_factory=EvolveConfig)
    writer: WriterConfig = field(default_factory=WriterConfig)
    progress: Literal["auto", "rich", "plain", "none"] = "auto"


def load_ahd_config(path: str | Path, overrides: Sequence[str] = ()) -> AhdConfig:
    """The validated config in a YAML file, with `section.key=value` overrides applied.

    Raises:
        EsoptError: unreadable file, unknown key, wrong type or invalid value; all problems at once.
    """
    path = Path(path)
    if not path.is_file():
        raise EsoptError(f"config file {str(path)!r} does not exist; give a YAML file, such as one of experiments/ahd")
    tree = read_tree(path, overrides)
    tree.setdefault("name", path.stem)
    return from_mapping(tree)


def from_mapping(tree: Mapping[str, Any]) -> AhdConfig:
    """A validated config from a nested mapping; missing keys take their defaults.

    Raises:
        EsoptError: with every problem in one message.

    Example:
        >>> from_mapping({"search": {"budget": 50}, "writer": {"backend": "scripted"}}).search.budget
        50
        >>> from_mapping({"search": {"bugdet": 50}})
        Traceback (most recent call last):
        esopt_jax.errors.EsoptError: unknown key 'search.bugdet': did you mean 'budget'?
    """
    return build(AhdConfig, tree, problems)


def to_yaml(config: AhdConfig) -> str:
    """The resolved config as YAML; `load_ahd_config` reads it back to an equal one."""
    return yaml.safe_dump(json.loads(json.dumps(dataclasses.asdict(config))), sort_keys=False)


def problems(config: AhdConfig) -> list[str]:
    """Everything that is wrong with the values, each with the fix."""
    found: list[str] = []
    check = checker(config, found)
    task, search, writer = config.task, config.search, config.writer
    check(bool(config.name), "name", "a name, since run folders are called after it")
    check(bool(task.name), "task.name", "the name of a task")
    check(task.size >= 0, "task.size", "0 (the published training size) or more")
    check(1 <= task.workers <= 1024, "task.workers", "1 to 1024")
    check(_above_0(task.cpu_s), "task.cpu_s", "a finite number of seconds above 0")
    check(0 <= search.seed < 2**32, "search.seed", "in 0 .. 2^32-1")
    for key in ("budget", "population_size", "parents", "batch_size", "initial_batches"):
        check(1 <= getattr(search, key) < 2**31, f"search.{key}", "at least 1")
    check(0 <= search.retries < 1000, "search.retries", "0 to 999")
    check(_above_0(search.mutations), "search.mutations", "a finite number above 0")
    if _above_0(search.mutations) and search.population_size > 0:
        check(asked_for(search, "m1") >= 1, "search.mutations", "so large that m1 asks for a program")
    check(writer.backend == "scripted" or bool(writer.model), "writer.model", "a model, unless the backend is scripted")
    check(writer.backend != "endpoint" or bool(writer.base_url), "writer.base_url", "the address of the endpoint")
    check(_above_0(writer.timeout_s), "writer.timeout_s", "a finite number of seconds above 0")
    check(0 <= writer.retries < 1000, "writer.retries", "0 to 999")
    check(1 <= writer.concurrency <= 1024, "writer.concurrency", "1 to 1024")
    check(math.isfinite(writer.temperature) and writer.temperature >= 0, "writer.temperature", "0 or more")
    check(0 < writer.top_p <= 1, "writer.top_p", "above 0, at most 1")
    for key in ("max_tokens", "max_prompt_tokens"):
        check(1 <= getattr(writer, key) < 2**20, f"writer.{key}", "1 to 1048575")
    check(0 <= writer.rows < 2**20, "writer.rows", "0 (a batch) or more")
    return found + _evolve_problems(config)


def _evolve_problems(config: AhdConfig) -> list[str]:
    es, members = config.es, asked_for(config.search, "i1" if config.search.method == "sample" else "m1")
    if not es.enabled:
        return []
    found = []
    if config.writer.backend != "model":
        found.append(f"es.enabled is true while writer.backend is {config.writer.backend!r}; weights need a model")
    if not 0 <= es.seed < 2**32:
        found.append(f"es.seed is {es.seed}; it must be in 0 .. 2^32-1")
    if not _above_0(es.sigma) or not (math.isfinite(es.sigma_end) and es.sigma_end >= 0):
        found.append(f"es.sigma and es.sigma_end are {es.sigma} and {es.sigma_end}; they must be finite, sigma above 0")
    if es.sigma_end == 0 and es.sigma_schedule != "constant" and es.rewards == "ranked":
        found.append("es.sigma_end is 0: the last updates would be noise; end above 0 (the published rewards allow it)")
    if not (math.isfinite(es.alpha) and es.alpha >= 0):
        found.append(f"es.alpha is {es.alpha}; it must be a finite number, 0 or more")
    if members < 2:
        found.append(f"a batch of {members} members cannot be compared; let batches ask for at least 2 programs")
    if not 0 <= es.parents <= members // 2:
        found.append(f"es.parents is {es.parents}; it must be 0 (each member its own) to {members // 2}")
    if es.rewards == "ranked" and not es.parents:
        found.append("es.parents is 0, so that ranked rewards have nothing to compare; set it to at least 1")
    if es.antithetic and (members % 2 or (es.parents and members % (2 * es.parents))):
        found.append(
            f"es.antithetic pairs members of one parent: {members} members and {es.parents} parents do not fit"
        )
    if not 0 <= es.members_per_pass <= members:
        found.append(f"es.members_per_pass is {es.members_per_pass}; it must be 0 (all) to {members}")
    if es.rank < 1:
        found.append(f"es.rank is {es.rank}; it must be at least 1")
    if es.scope.startswith("lora"):
        found.append(f"es.scope is {es.scope!r}; adapters are not made here: full, all_linear or pattern:REGEX")
    return found


def _above_0(value: float) -> bool:
    return math.isfinite(value) and value > 0
