"""The device programs of a rollout, and the devices they run on.

`make_engine` compiles two programs, one that starts a turn (one variant per padded prompt length) and one that writes
replies. Shapes are fixed by (members, rows), so one of each serves a run. On a mesh (n, 1) one program serves all
devices: each plays its own members and loops over its own rows, and nothing is exchanged. Where the model is split, the
devices that hold it together are a group (`models.sharding.member_groups`), which plays its members with a program of
its own: the placement of the weights decides that of all else. Groups run at once, from a thread each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from esopt_jax.config import RolloutConfig
from esopt_jax.core.views import Factored, Shared, unwrapped, view_axes
from esopt_jax.models.load import Model
from esopt_jax.models.lora import assembled
from esopt_jax.models.sharding import MEMBER, member_groups, on_mesh
from esopt_jax.rollouts.chat import Chat
from esopt_jax.rollouts.decode import DecodeSpec, DecodeState, Segment, decode_segment, init_state, start_turn
from esopt_jax.rollouts.keys import Slots, row_keys
from esopt_jax.rollouts.sampler import Sampling
from esopt_jax.types import View

T = TypeVar("T")


@dataclass(frozen=True)
class Engine:
    """What all passes of a run share.

    Attributes:
        spec: what is compiled in.
        dtype: compute type of caches.
        common_random_numbers: whether members share sampling keys.
        mesh: (n, 1), among whose devices members are split; else None.
        groups: the meshes (1, n) that hold a model each; `(None,)` where no model is split.
        segment: tokens of a reply between which rows may come and go.
        new: `new(shape, penalties)` makes an empty state where it will live.
        start: jitted `start_turn` of a batched or a shared view.
        write: jitted `decode_segment`.
    """

    spec: DecodeSpec
    dtype: Any
    common_random_numbers: bool
    mesh: Mesh | None
    groups: tuple[Mesh | None, ...]
    segment: np.int32
    new: Callable[..., DecodeState]
    start: Callable[..., DecodeState]
    write: Callable[..., DecodeState]

    @property
    def shares(self) -> int:
        """Equal parts in which rows are dealt out, to devices or to groups of them."""
        return len(self.groups) if self.mesh is None else self.mesh.shape[MEMBER]

    def within(self, group: int = 0) -> AbstractContextManager[Any]:
        """The context of a group's calls: its mesh as the current one, where it has one."""
        mesh = self.groups[group]
        return nullcontext() if mesh is None else jax.set_mesh(mesh)

    def spread(self, tree: T) -> list[T]:
        """Arrays that each group needs whole, where it needs them; those of the first group are there already."""
        if self.mesh is not None:
            return [jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))]
        return [tree, *(on_mesh(tree, mesh) for mesh in self.groups[1:] if mesh is not None)]

    def each(self, function: Callable[..., T], *parts: Sequence[Any]) -> list[T]:
        """`function(group, part, ...)` of each group, all at once."""

        def call(group: int, *own: Any) -> T:
            with self.within(group):
                return function(group, *own)

        numbers = range(len(self.groups))
        if len(numbers) == 1:
            return [call(0, *(part[0] for part in parts))]
        with ThreadPoolExecutor(len(numbers), "esopt-group") as threads:
            return list(threads.map(call, numbers, *parts))


def make_engine(model: Model, chat: Chat, *, rollout: RolloutConfig, dtype: Any, mesh: Mesh | None = None) -> Engine:
    """The engine of `model`.

    Args:
        model: architecture and vocabulary; its weights are not read.
        chat: end ids.
        rollout: lengths, and whether random numbers are common.
        dtype: compute type.
        mesh: (member, model) with explicit axes; a mesh of one device is the same as None.
    """
    groups: tuple[Mesh | None, ...] = (None,)
    if mesh is not None and (split := member_groups(mesh)):
        groups, mesh = split, None
    spec = DecodeSpec(
        arch=model.arch,
        eos_ids=chat.stop_ids,
        vocab_limit=model.vocab_limit,
        max_new_tokens=rollout.max_new_tokens,
        capacity=rollout.max_prompt_tokens + rollout.max_new_tokens,
    )
    mesh = None if mesh is None or mesh.size == 1 else mesh
    placement = None if mesh is None else NamedSharding(mesh, PartitionSpec(MEMBER))
    common = rollout.common_random_numbers
    return Engine(
        spec=spec,
        dtype=dtype,
        common_random_numbers=common,
        mesh=mesh,
        groups=groups,
        segment=np.int32(rollout.segment or rollout.max_new_tokens),
        new=jax.jit(partial(init_state, spec, dtype=dtype), static_argnums=(0, 1), out_shardings=placement),
        start=_jit_turn(partial(_start, spec=spec, common_random_numbers=common), mesh),
        write=_jit_turn(partial(_write, spec=spec), mesh),
    )


def by_member(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays with a leading member axis, each part on the device that plays those members."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec(MEMBER)))


def _start(
    view: View,
    state: DecodeState,
    segment: Segment,
    slots: Slots,
    seed: jax.Array,
    generation: jax.Array,
    sampling: Sampling,
    *,
    axes: Any,
    spec: DecodeSpec,
    common_random_numbers: bool,
) -> DecodeState:
    keys = row_keys(seed, generation, slots, common_random_numbers=common_random_numbers)
    return start_turn(view, state, segment, keys, sampling, spec=spec, axes=axes)


def _write(
    view: View, state: DecodeState, steps: jax.Array, sampling: Sampling, *, axes: Any, spec: DecodeSpec
) -> DecodeState:
    return decode_segment(view, state, steps, sampling, spec=spec, axes=axes)


def _jit_turn(step: Callable[..., DecodeState], mesh: Mesh | None) -> Callable[..., DecodeState]:
    """`step` compiled for a view that is `batched` over members or shared, its state donated."""

    @partial(jax.jit, static_argnums=0, donate_argnums=2)
    def call(batched: bool, view: View, state: DecodeState, *rest: Any) -> DecodeState:
        axes = assembled(view_axes(view)) if batched else None
        run = partial(step, axes=axes)
        if mesh is None:
            return run(assembled(unwrapped(view)), state, *rest)
        rows, whole = PartitionSpec(MEMBER), PartitionSpec()
        placed = tuple(rows if isinstance(part, Segment | Slots) else whole for part in rest)
        specs = (view_partition(view, batched), rows, *placed)
        return jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=rows)(assembled(unwrapped(view)), state, *rest)

    return call


def view_partition(view: View, batched: bool) -> Any:
    """How the leaves of the `assembled` view are spread over the `member` axis."""
    rows, whole = PartitionSpec(MEMBER), PartitionSpec()
    if not batched:
        return whole

    def partition(leaf: Any) -> Any:
        match leaf:
            case Factored():
                return Factored(whole, rows, rows)
            case Shared():
                return whole
            case _:
                return rows

    return assembled({path: partition(leaf) for path, leaf in view.items()})
