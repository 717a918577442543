"""Replies of a model to prompts, outside any environment: for looking at a model in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from esopt_jax.config import RolloutConfig
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model
from esopt_jax.models.sharding import member_groups, on_mesh
from esopt_jax.rollouts.chat import load_chat
from esopt_jax.rollouts.driver import Start
from esopt_jax.rollouts.engine import make_engine
from esopt_jax.rollouts.policy import DevicePolicy
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.rollouts.seats import Episode, Ids
from esopt_jax.rollouts.workers import Fault
from esopt_jax.types import Message, Task, View


def generate(
    model: Model,
    prompts: Sequence[str | Sequence[Message]],
    *,
    params: View | None = None,
    rollout: RolloutConfig | None = None,
    seed: int = 0,
) -> list[str]:
    """One reply a prompt, all written at once.

    Args:
        model: as `load_model` read it.
        prompts: user messages, or whole lists of chat messages.
        params: weights to use instead of the model's own, such as `Run.params()` or a member's view.
        rollout: sampling, `max_new_tokens` and `thinking`; `max_prompt_tokens` follows from the prompts.
        seed: of the sampling; row i of equal prompts is sampled apart from row j.

    Returns:
        The texts, without their end token.

    Raises:
        EsoptError: no list of prompts, no usable tokenizer, or messages that its chat template refuses.

    Example:
        >>> from esopt_jax.models.load import load_model
        >>> model = load_model("builtin:sudoku-4x4")
        >>> len(generate(model, ["2", "3"], rollout=RolloutConfig(temperature=0, max_new_tokens=4)))
        2
    """
    if not prompts or isinstance(prompts, str):
        raise EsoptError(f"prompts is {prompts!r}; give a list of at least one")
    rollout = RolloutConfig() if rollout is None else rollout
    chat = load_chat(model.folder, thinking=rollout.thinking, eos_ids=model.eos_ids)
    ids = []
    for prompt in chat.prompts([_conversation(prompt) for prompt in prompts]):
        if isinstance(prompt, Fault):
            raise EsoptError(prompt.reason)
        ids.append(prompt)
    rollout = dataclasses.replace(rollout, max_prompt_tokens=max(map(len, ids)))
    view = dict(model.params if params is None else params)
    home = next(iter(jax.tree.leaves(view))).sharding
    mesh = None
    if isinstance(home, NamedSharding):  # one group replies
        mesh = next(iter(member_groups(home.mesh)), None)
        view = jax.device_put(view, home.mesh.devices.flat[0]) if mesh is None else on_mesh(view, mesh)
    engine = make_engine(model, chat, rollout=rollout, dtype=jnp.float32, mesh=mesh)
    policy = DevicePolicy(
        engine,
        [view],
        (1, len(ids)),
        sampling=make_sampling(rollout),
        seed=seed,
        generation=0,
        batched=False,
    )
    task, said = Task(""), dict[int, Ids]()
    policy.begin([Start(row, prompt, True, Episode(0, row, 0, task, 0), 0) for row, prompt in enumerate(ids)])
    while len(said) < len(ids):
        said |= policy.proceed()
    return [chat.text(said[row]) for row in range(len(ids))]


def _conversation(prompt: str | Sequence[Message]) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
