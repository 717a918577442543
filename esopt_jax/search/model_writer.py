"""Programs written by a model of ours: one view of the weights, or the members of a population, in one batch.

The number of rows never changes, so that one program serves a whole search, and an answer follows from its request and
the weights alone: not from the other rows, their number or their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax.numpy as jnp

from esopt_jax.config import RolloutConfig
from esopt_jax.core.master import view_dtype
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model, open_model
from esopt_jax.rollouts.chat import Chat, load_chat
from esopt_jax.rollouts.driver import Start
from esopt_jax.rollouts.engine import Engine, make_engine
from esopt_jax.rollouts.policy import DevicePolicy
from esopt_jax.rollouts.sampler import Sampling, make_sampling
from esopt_jax.rollouts.seats import Episode, Ids
from esopt_jax.rollouts.workers import Fault
from esopt_jax.search.config import WriterConfig
from esopt_jax.search.writer import Reply, Request
from esopt_jax.types import Task, View

_TASK = Task("")


@dataclass(frozen=True)
class Desk:
    """What writing needs besides weights: programs, chat, and the limits that are compiled in."""

    engine: Engine
    chat: Chat
    rollout: RolloutConfig

    def sampling(self, requests: Sequence[Request]) -> Sampling:
        """Numbers of the sampling, which the requests share.

        Raises:
            EsoptError: they differ, or an answer longer than the rows are is wanted.
        """
        asked = {(request.temperature, request.top_p, request.max_tokens) for request in requests}
        own = (self.rollout.temperature, self.rollout.top_p, self.rollout.max_new_tokens)
        if asked != {own}:
            raise EsoptError(f"requests have (temperature, top_p, max_tokens) {sorted(asked)}; the model writes {own}")
        return make_sampling(self.rollout)


def make_desk(model: Model, config: WriterConfig) -> Desk:
    """The desk of a model.

    Args:
        model: its weights are not read.
        config: lengths, sampling and compute type.

    Raises:
        EsoptError: no usable tokenizer.
    """
    rollout = RolloutConfig(
        max_new_tokens=config.max_tokens,
        max_prompt_tokens=config.max_prompt_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        common_random_numbers=True,  # the seed of a request is all that its sampling knows
    )
    chat = load_chat(model.folder, thinking=False, eos_ids=model.eos_ids)
    return Desk(make_engine(model, chat, rollout=rollout, dtype=jnp.dtype(config.dtype)), chat, rollout)


class ModelWriter:
    """One model; a `writer.Writer`."""

    def __init__(self, desk: Desk, view: View, *, rows: int) -> None:
        """Write with a view of the weights, `rows` answers at once."""
        self._desk, self._view, self._rows = desk, view, rows

    def write(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply a request, whichever member it names.

        Raises:
            EsoptError: a prompt is longer than there is room for, or the model's chat template refuses it.
        """
        return _write(self._desk, self._view, requests, members=(), width=self._rows)


class MembersWriter:
    """Members of a population, each with a lane of its own; a `writer.Writer`."""

    def __init__(self, desk: Desk, views: View, members: Sequence[int], *, rows: int) -> None:
        """Write with `views` of the `members`, stacked along a leading axis, `rows` answers of each at once."""
        self._desk, self._views, self._rows, self._members = desk, views, rows, tuple(members)

    def write(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply a request, from the member that it names; raises as `ModelWriter.write`."""
        return _write(self._desk, self._views, requests, members=self._members, width=self._rows)


def load_writer(config: WriterConfig, *, rows: int) -> ModelWriter:
    """The writer of a model by its path, `rows` answers at once."""
    model = open_model(config.model)
    desk = make_desk(model, config)
    types = {spec.path: view_dtype(desk.engine.dtype, spec.keep_float32) for spec in model.specs}
    view = {path: jnp.asarray(model.params[path], dtype) for path, dtype in types.items()}  # a leaf at a time
    return ModelWriter(desk, view, rows=rows)


def _write(desk: Desk, view: View, requests: Sequence[Request], *, members: Sequence[int], width: int) -> list[Reply]:
    prompts = list(_prompts(desk, requests))
    queues: list[deque[int]] = [deque() for _ in range(max(1, len(members)))]
    for index, request in enumerate(requests):
        queues[members.index(request.member) if members and request.member is not None else 0].append(index)
    policy = DevicePolicy(
        desk.engine,
        [view],
        (len(queues), width),
        sampling=desk.sampling(requests),
        seed=0,
        generation=0,
        batched=bool(members),
    )
    free = {row: queues[row // width] for row in range(len(queues) * width)}
    writing, said = dict[int, int](), dict[int, Ids]()
    while len(said) < len(requests):
        starts = []
        for row, queue in free.items():
            if row not in writing and queue:
                index = writing[row] = queue.popleft()
                episode = Episode(0, requests[index].seed, 0, _TASK, 0)
                starts.append(Start(row, prompts[index], True, episode, 0))
        if starts:
            policy.begin(starts)
        said |= {writing.pop(row): ids for row, ids in policy.proceed().items()}
    ended = desk.chat.stop_ids
    return [
        Reply(desk.chat.text(said[index]), "stop" if said[index][-1] in ended else "length")
        for index in range(len(requests))
    ]


def _prompts(desk: Desk, requests: Sequence[Request]) -> Iterator[Ids]:
    room = desk.rollout.max_prompt_tokens
    for ids in desk.chat.prompts([request.messages for request in requests]):
        if isinstance(ids, Fault):
            raise EsoptError(ids.reason)
        if len(ids) > room:
            raise EsoptError(f"writer.max_prompt_tokens is {room}: a prompt has {len(ids)}; set it to at least that")
        yield ids
