"""A policy on the device: one model, or members in lanes, behind the driver's `begin` and `proceed`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import jax
import numpy as np

from esopt_jax.core.views import with_member
from esopt_jax.rollouts.clock import Clock
from esopt_jax.rollouts.decode import Segment
from esopt_jax.rollouts.driver import Start
from esopt_jax.rollouts.engine import Engine, by_member
from esopt_jax.rollouts.keys import Slots
from esopt_jax.rollouts.sampler import Sampling
from esopt_jax.rollouts.seats import Ids
from esopt_jax.types import View

T = TypeVar("T")
Make = Callable[[int, np.ndarray], View]

SHORTEST_SEGMENT = 32
"""Prompts are padded to 32, 64, 128, ... tokens, so that few programs serve all lengths."""


class DevicePolicy:
    """Plays `members x cases` rows, row `m * C + c` being the c-th of lane m; a `driver.Policy`."""

    def __init__(
        self,
        engine: Engine,
        views: list[View],
        shape: tuple[int, int],
        *,
        sampling: Sampling,
        seed: int,
        generation: int,
        batched: bool,
        make: Make | None = None,
        clock: Clock | None = None,
    ):
        """Rows that nobody plays yet.

        Args:
            engine: programs.
            views: weights, one view a group, with a leading axis of its members where `batched`, else shared by all its
                rows; the policy takes the list over.
            shape: (M, C); groups hold equal parts of M.
            sampling: numbers and flags.
            seed: root of the sampling keys.
            generation: folded into the keys.
            batched: whether the views have member axes.
            make: `make(group, members)` makes the view of a group's members; None where members never change.
            clock: counts the time of what it does, if anybody asks.
        """
        self._engine, self._views, self._sampling = engine, views, sampling
        self._shape, self._batched, self._make = shape, batched, make
        self._root = (np.uint32(seed), np.int32(generation))
        self._slots = Slots(*np.zeros((4, math.prod(shape)), np.int32))
        self._writing: set[int] = set()
        self._written = np.zeros(math.prod(shape), np.int64)
        self._clock = Clock() if clock is None else clock
        own = (shape[0] // len(engine.groups), shape[1])
        self._states = engine.each(lambda _: engine.new(own, sampling.flags.penalties))

    def turn_to(self, members: Sequence[tuple[int, int]]) -> None:
        """Put other members into lanes."""
        lanes = self._shape[0] // len(self._engine.groups)
        with self._clock("perturb"):
            for group in range(len(self._engine.groups)):
                turned = {lane % lanes: member for lane, member in members if lane // lanes == group}
                if turned:
                    self._turn_group(group, turned, lanes)
            jax.block_until_ready(self._views)

    def _turn_group(self, group: int, turned: Mapping[int, int], lanes: int) -> None:
        assert self._make is not None, "this policy keeps its members"
        with self._engine.within(group):
            if len(turned) == lanes:
                self._views[group] = {}  # so that the copies of the old members are gone before there are new ones
                self._views[group] = self._make(group, np.array([turned[lane] for lane in range(lanes)], np.int32))
                return
            for lane, member in turned.items():
                one = self._make(group, np.array([member], np.int32))
                self._views[group] = with_member(self._views[group], one, lane)

    def begin(self, starts: Sequence[Start]) -> None:
        """Read prompts and sample the first token of their replies."""
        rows = np.fromiter((start.row for start in starts), np.int32, len(starts))
        lengths = np.fromiter((len(start.prompt) for start in starts), np.int32, len(starts))
        width = padded_length(int(lengths.max()), self._engine.spec.capacity)
        tokens = np.zeros((len(starts), width), np.int32)
        flat = np.fromiter(chain.from_iterable(start.prompt for start in starts), np.int32, int(lengths.sum()))
        tokens[np.arange(width) < lengths[:, None]] = flat
        segment = Segment(
            tokens=self._spread(rows, tokens),
            lengths=self._spread(rows, lengths),
            fresh=self._spread(rows, np.fromiter((start.fresh for start in starts), bool, len(starts))),
        )
        played = ((s.episode.member, s.episode.case, s.episode.episode, s.turn) for s in starts)
        for slot, values in zip(jax.tree.leaves(self._slots), zip(*played, strict=True), strict=True):
            slot[rows] = values
        slots = jax.tree.map(lambda x: x.reshape(self._shape), self._slots)
        with self._clock("prefill"):
            self._engine.each(self._begin, by_group((segment, slots), len(self._engine.groups)))
            jax.block_until_ready([state.last for state in self._states])
        self._clock.read += int(lengths.sum())
        self._writing.update(rows.tolist())
        self._written[rows] = 1

    def proceed(self) -> dict[int, Ids]:
        """Write on for a segment of tokens; the replies that have ended, by row."""
        with self._clock("decode"):
            found = self._engine.each(self._proceed)
        tokens, written, done = (
            np.concatenate(part).reshape(math.prod(self._shape), -1) for part in zip(*found, strict=True)
        )
        self._clock.wrote(np.where(self._written, written[:, 0] - self._written, 0))
        self._written = np.where(done[:, 0], 0, written[:, 0])
        ended = [row for row in sorted(self._writing) if done[row]]
        self._writing.difference_update(ended)
        said = zip(ended, tokens[ended].tolist(), written[ended, 0].tolist(), strict=True)
        return {row: tuple(ids[:count]) for row, ids, count in said}

    def _begin(self, group: int, part: tuple[Segment, Slots]) -> None:
        engine = self._engine
        segment, slots = by_member(part, engine.mesh)
        rest = (self._states[group], segment, slots, *self._root, self._sampling)
        self._states[group] = engine.start(self._batched, self._views[group], *rest)

    def _proceed(self, group: int) -> tuple[np.ndarray, ...]:
        engine = self._engine
        rest = (self._states[group], engine.segment, self._sampling)
        self._states[group] = state = engine.write(self._batched, self._views[group], *rest)
        found: tuple[np.ndarray, ...] = jax.device_get((state.tokens, state.written, state.done))
        return found

    def _spread(self, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """`values: [n, ...]` of some rows among zeros, `[M, C, ...]`."""
        every = np.zeros((math.prod(self._shape), *values.shape[1:]), values.dtype)
        every[rows] = values
        return every.reshape(*self._shape, *values.shape[1:])


def by_group(tree: T, groups: int) -> list[T]:
    """Arrays with a leading member axis, cut into equal parts of it."""
    leaves, structure = jax.tree.flatten(tree)
    parts = zip(*(np.split(leaf, groups) for leaf in leaves), strict=True)
    return [jax.tree.unflatten(structure, part) for part in parts]


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
