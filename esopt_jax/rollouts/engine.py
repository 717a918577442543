"""A policy on the device: one model, or the members of one pass, behind the driver's `act`.

`make_engine` compiles two programs, one that starts a turn (one variant per padded prompt length) and one that writes
replies. Shapes are fixed by (members, rows), so all passes of a run share them. On a mesh (n, 1) one program serves all
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
from itertools import chain
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
from esopt_jax.rollouts.driver import Episode, Ids, Replies
from esopt_jax.rollouts.keys import Slots, row_keys
from esopt_jax.rollouts.sampler import Sampling
from esopt_jax.types import View

T = TypeVar("T")

SHORTEST_SEGMENT = 32
"""Prompts are padded to 32, 64, 128, ... tokens, so that few programs serve all lengths."""


@dataclass(frozen=True)
class Engine:
    """What all passes of a run share.

    Attributes:
        spec: what is compiled in.
        dtype: compute type of caches.
        common_random_numbers: whether members share sampling keys.
        mesh: (n, 1), among whose devices members are split; else None.
        groups: the meshes (1, n) that hold a model each; `(None,)` where no model is split.
        new: `new(shape, penalties)` makes an empty state where it will live.
        start: jitted `start_turn` of a batched or a shared view.
        write: jitted `decode_segment`.
    """

    spec: DecodeSpec
    dtype: Any
    common_random_numbers: bool
    mesh: Mesh | None
    groups: tuple[Mesh | None, ...]
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
        new=jax.jit(partial(init_state, spec, dtype=dtype), static_argnums=(0, 1), out_shardings=placement),
        start=_jit_turn(partial(_start, spec=spec, common_random_numbers=common), mesh),
        write=_jit_turn(partial(_write, spec=spec), mesh),
    )


class DevicePolicy:
    """Plays `members x cases` rows, row `m * C + c` being member m on case c; a `driver.Policy`."""

    def __init__(
        self,
        engine: Engine,
        views: Sequence[View],
        episodes: Sequence[Episode | None],
        shape: tuple[int, int],
        *,
        sampling: Sampling,
        seed: int,
        generation: int,
        batched: bool,
    ):
        """Seat `episodes` on fresh rows.

        Args:
            engine: programs.
            views: weights, one view a group; with a leading axis of the group's members where `batched`, else shared
                by all its rows.
            episodes: `[M * C]`, None for idle rows.
            shape: (M, C); groups hold equal parts of M.
            sampling: numbers and flags.
            seed: root of the sampling keys.
            generation: folded into the keys.
            batched: whether the views have member axes.
        """
        self._engine, self._views, self._sampling = engine, views, sampling
        self._shape, self._batched = shape, batched
        self._root = (np.uint32(seed), np.int32(generation))
        ids = np.array([(0, 0, 0) if e is None else (e.member, e.case, e.episode) for e in episodes], np.int32)
        self._ids = [column.reshape(shape) for column in ids.T]
        own = (shape[0] // len(engine.groups), shape[1])
        self._states = engine.each(lambda _: engine.new(own, sampling.flags.penalties))

    def act(self, prompts: Sequence[Ids], fresh: Sequence[bool], turn: int) -> Replies:
        """Read the prompts and reply, on all rows at once."""
        lengths = np.fromiter(map(len, prompts), np.int32, len(prompts))
        width = padded_length(int(lengths.max(initial=1)), self._engine.spec.capacity)
        tokens = np.zeros((len(prompts), width), np.int32)
        flat = np.fromiter(chain.from_iterable(prompts), np.int32, int(lengths.sum()))
        tokens[np.arange(width) < lengths[:, None]] = flat
        segment = Segment(
            tokens=tokens.reshape(*self._shape, width),
            lengths=lengths.reshape(self._shape),
            fresh=np.asarray(fresh, bool).reshape(self._shape),
        )
        slots = Slots(*self._ids, turn=np.full(self._shape, turn, np.int32))
        written = self._engine.each(self._turn, by_group((segment, slots), len(self._engine.groups)))
        ids, counts = (np.concatenate(part) for part in zip(*written, strict=True))
        return Replies(tokens=ids.reshape(len(prompts), -1), lengths=counts.reshape(-1))

    def _turn(self, group: int, part: tuple[Segment, Slots]) -> tuple[np.ndarray, np.ndarray]:
        """One group's turn: its tokens and how many they are."""
        engine = self._engine
        segment, slots = by_member(part, engine.mesh)
        call = (self._batched, self._views[group])
        state = engine.start(*call, self._states[group], segment, slots, *self._root, self._sampling)
        self._states[group] = state = engine.write(*call, state, self._sampling)
        ids, counts = jax.device_get((state.tokens, state.written))
        return ids, counts


def by_group(tree: T, groups: int) -> list[T]:
    """Arrays with a leading member axis, cut into equal parts of it."""
    leaves, structure = jax.tree.flatten(tree)
    parts = zip(*(np.split(leaf, groups) for leaf in leaves), strict=True)
    return [jax.tree.unflatten(structure, part) for part in parts]


def by_member(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays with a leading member axis, each part on the device that plays those members."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec(MEMBER)))


def padded_length(tokens: int, capacity: int) -> int:
    """The length to which segments of at most `tokens` tokens are padded.

    Example:
        >>> [padded_length(n, 100) for n in (1, 32, 33, 90)]
        [32, 32, 64, 100]
    """
    width = SHORTEST_SEGMENT
    while width < tokens:
        width *= 2
    return min(width, capacity)


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
    return start_turn(view, state, segment, slots, keys, sampling, spec=spec, axes=axes)


def _write(view: View, state: DecodeState, sampling: Sampling, *, axes: Any, spec: DecodeSpec) -> DecodeState:
    return decode_segment(view, state, spec.max_new_tokens, sampling, spec=spec, axes=axes)


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
