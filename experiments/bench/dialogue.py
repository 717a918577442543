"""Conversations of a known length, and models that hold them: what the benchmarks of whole episodes share.

Replies have no end token: every turn reads and writes the same number of tokens, whoever plays it.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import shapes

from esopt_jax.config import ESConfig, RolloutConfig
from esopt_jax.models.load import Model, load_model
from esopt_jax.models.registry import leaf_specs, parse_architecture
from esopt_jax.models.sizes import PUBLISHED
from esopt_jax.rollouts.chat import Chat, load_chat
from esopt_jax.rollouts.engine import make_engine
from esopt_jax.rollouts.population import Stage, make_stage
from esopt_jax.rollouts.workers import StepPool
from esopt_jax.types import Observation, Step, Task

TASKS = 64
SMALL: Mapping[str, Any] = {
    **PUBLISHED[shapes.GPU],
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "rope_parameters": {**PUBLISHED[shapes.GPU]["rope_parameters"], "mrope_section": [3, 3, 2]},
}
"""Width 256, as the decode benchmark has it."""


@dataclass(frozen=True)
class Dialogue:
    """Append-only; every task is a conversation of `turns` questions of `letters` letters, a token each."""

    turns: int
    letters: int

    def tasks(self, split: str) -> list[Task]:
        """As many as any benchmark plays."""
        return [Task(str(n), n) for n in range(TASKS)]

    def reset(self, task: Task, seed: int) -> tuple[tuple[int, int], Observation]:
        """The first question."""
        return (task.data, 0), self.ask(task.data, 0)

    def step(self, state: tuple[int, int], action: str) -> Step:
        """The next one; varied replies are rewarded."""
        task, turn = state[0], state[1] + 1
        done = turn == self.turns
        reward = len(set(action)) / len(action) if action else 0.0
        return Step((task, turn), None if done else self.ask(task, turn), reward, done, {})

    def ask(self, task: int, turn: int) -> Observation:
        """Question `turn` of a task, which no other task asks."""
        text = "".join(chr(ord("A") + (task + turn * place) % 26) for place in range(self.letters))
        return Observation(({"role": "user", "content": text},), "append")


def endless(chat: Chat) -> Chat:
    """The same chat; nothing that is written ends a reply before it is full."""
    chat.stop_ids = ()
    return chat


def random_model(config: Mapping[str, Any], *, dtype: Any) -> Model:
    """A model of these sizes with random weights and the tokenizer of the built-in one."""
    arch = parse_architecture(config)
    specs = leaf_specs(arch)
    drawn = shapes.weights(specs)
    params = {s.path: drawn.pop(s.path).astype(jnp.float32 if s.keep_float32 else dtype) for s in specs}
    return dataclasses.replace(load_model("builtin:sudoku-4x4"), arch=arch, specs=specs, params=params, eos_ids=())


@contextmanager
def staged(
    model: Model,
    environment: Dialogue,
    *,
    rollout: RolloutConfig,
    es: ESConfig,
    dtype: Any = jnp.float32,
    mesh: jax.sharding.Mesh | None = None,
) -> Iterator[Stage]:
    """What a rollout of such conversations needs."""
    chat = endless(load_chat(model.folder, thinking=False))
    engine = make_engine(model, chat, rollout=rollout, dtype=dtype, mesh=mesh)
    with StepPool(workers=2) as pool:
        yield make_stage(engine, model, environment, chat, pool, rollout=rollout, es=es)
