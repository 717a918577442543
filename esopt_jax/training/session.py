"""Everything that a run or an evaluation needs, built once from its config; nothing is compiled yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp

from esopt_jax.config import Config, ESConfig
from esopt_jax.core.scope import tuned_specs
from esopt_jax.envs.registry import make_environment
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model
from esopt_jax.models.sharding import make_mesh
from esopt_jax.rollouts.chat import Chat, load_chat
from esopt_jax.rollouts.clock import Clock
from esopt_jax.rollouts.engine import make_engine
from esopt_jax.rollouts.population import Case, Stage, make_stage
from esopt_jax.rollouts.workers import Fault, StepPool
from esopt_jax.training.cases import available, held_out_tasks, training_cases
from esopt_jax.training.compile_clock import compile_clock
from esopt_jax.training.restore import base_model
from esopt_jax.types import Environment, Observation, Task


@dataclass(frozen=True)
class Session:
    """A config and what it names.

    Attributes:
        config: resolved config.
        model: the base model, of which training has taken the weights.
        stage: environment, device programs and host threads of all rollouts.
        pool: the host threads, for their counters.
        train_tasks: all training tasks.
        held_out: what every evaluation plays.
    """

    config: Config
    model: Model
    stage: Stage
    pool: StepPool
    train_tasks: tuple[Task, ...]
    held_out: tuple[Case, ...]

    def training_cases(self, generation: int) -> list[Case]:
        """What every member plays in `generation`."""
        n_tasks = len(self.train_tasks)
        cases = min(self.config.rollout.cases, n_tasks)
        chosen = training_cases(self.config.es.seed, generation, n_tasks=n_tasks, cases=cases)
        return [(int(i), self.train_tasks[i]) for i in chosen]


def load_parts(config: Config) -> tuple[Environment, Model]:
    """The environment and the base model that a config names; what is quick to refuse comes first.

    Raises:
        EsoptError: one of them cannot be had, or a group of leaves that is not tuned has a multiplier.
    """
    make_mesh(config.train.mesh)
    environment = make_environment(config.env.name, prompt=config.env.prompt, options=config.env.options)
    model = base_model(config.model.path, config.es, config.train.mesh)
    _check_multipliers(model, config.es)
    return environment, model


@contextmanager
def open_session(config: Config, environment: Environment, model: Model) -> Iterator[Session]:
    """Start what rollouts need; give the host threads up at the end.

    Args:
        config: resolved config.
        environment: as `load_parts` made it.
        model: its weights are not read and may be gone.

    Raises:
        EsoptError: the model has no usable tokenizer, the environment no usable tasks, a first prompt does not fit, or
            the mesh does not.
    """
    rollout = config.rollout
    chat = load_chat(model.folder, thinking=rollout.thinking, eos_ids=model.eos_ids)
    dtype = jnp.dtype(config.model.dtype)
    engine = make_engine(model, chat, rollout=rollout, dtype=dtype, mesh=make_mesh(config.train.mesh))
    train_tasks, held_out = _tasks(environment, "train"), _held_out(config, _tasks(environment, "eval"))
    available(rollout.cases, "rollout.cases", train_tasks, "train")
    with (
        StepPool(workers=rollout.workers, timeout_s=rollout.step_timeout_s, retries=rollout.step_retries) as pool,
        compile_clock() as compiling,
    ):
        _check_first_prompts(environment, (train_tasks[0], held_out[0][1]), chat, pool, rollout.max_prompt_tokens)
        clock = Clock(compiled=lambda: compiling.seconds)
        yield Session(
            config=config,
            model=model,
            stage=make_stage(engine, model, environment, chat, pool, rollout=rollout, es=config.es, clock=clock),
            pool=pool,
            train_tasks=train_tasks,
            held_out=held_out,
        )


def _check_multipliers(model: Model, es: ESConfig) -> None:
    """Refuse a factor on the noise of leaves that no member would differ in."""
    groups = {spec.group for spec in tuned_specs(model.specs, es.scope)}
    if idle := sorted(set(es.sigma_multipliers) - groups):
        raise EsoptError(
            f"es.sigma_multipliers names {', '.join(idle)}, of which es.scope {es.scope!r} tunes nothing; in this "
            f"model it tunes {', '.join(sorted(groups))}"
        )


def _tasks(environment: Environment, split: str) -> tuple[Task, ...]:
    try:
        tasks = tuple(environment.tasks(split))
    except (Exception, SystemExit) as fault:
        reason = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
        raise EsoptError(f"the environment's tasks({split!r}) failed with {reason}") from fault
    for task in tasks:
        if not isinstance(task, Task):
            raise EsoptError(f"the environment's tasks({split!r}) hold {task!r}, which is no esopt_jax.types.Task")
    return tasks


def _check_first_prompts(
    environment: Environment, tasks: Sequence[Task], chat: Chat, pool: StepPool, room: int
) -> None:
    """Refuse what no episode could start with, before a run has a folder. A reset that fails is no bad input."""
    for task, result in zip(tasks, pool.run([partial(environment.reset, task, 0) for task in tasks]), strict=True):
        match result:
            case (_, Observation(messages=messages)):
                (prompt,) = chat.prompts([messages])
            case _:
                continue  # counted as an infrastructure error once episodes are played
        if isinstance(prompt, Fault):
            raise EsoptError(f"task {task.id!r}: {prompt.reason}")
        if len(prompt) > room:
            raise EsoptError(
                f"task {task.id!r} has a prompt of {len(prompt)} tokens; rollout.max_prompt_tokens is {room}: set it "
                f"to at least {len(prompt)}"
            )


def _held_out(config: Config, tasks: Sequence[Task]) -> tuple[Case, ...]:
    episodes = available(config.eval.episodes, "eval.episodes", tasks, "eval")
    chosen = held_out_tasks(config.eval.seed, n_tasks=len(tasks), episodes=episodes)
    return tuple((int(i), tasks[i]) for i in chosen)
