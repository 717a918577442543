"""A pool of small leaves of which some are cut over a mesh axis: every device has its window of these, and the rest.

The noise of the whole pool is drawn on every device, which small leaves can afford, and each takes what belongs to its
windows: nothing is exchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esopt_jax.core.placement import Cut, behind, cut_of, gathered, on_windows, over, summed
from esopt_jax.core.rounding import MasterLeaf, Split

Form = tuple[int, int]


@dataclass(frozen=True)
class PoolWindows:
    """What of a pool a device holds.

    Attributes:
        cuts: one a leaf; None for a leaf that every device has whole.
        places: `[n]` int32, position in the flat pool of each element that the first device holds.
        steps: `[n]` int32, by how much the position of the next device's element is more.
        bounds: offsets of the leaves among them, and their end.
    """

    cuts: tuple[Cut | None, ...]
    places: np.ndarray
    steps: np.ndarray
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, leaves: Sequence[MasterLeaf], forms: Sequence[Form]) -> PoolWindows:
        """The windows of leaves with these noise forms; those cut over another axis than the first are whole."""
        cuts = [cut_of(leaf, form) for leaf, form in zip(leaves, forms, strict=True)]
        first = next((cut for cut in cuts if cut is not None), None)
        cuts = [cut if cut is not None and first is not None and cut.axis == first.axis else None for cut in cuts]
        places, steps, offset = [], [], 0
        for cut, (rows, columns) in zip(cuts, forms, strict=True):
            own, step = (np.arange(rows * columns, dtype=np.int32), 0) if cut is None else cut.places((rows, columns))
            places.append(own + offset)
            steps.append(np.full(len(own), step, np.int32))
            offset += rows * columns
        bounds = (0, *np.cumsum([len(own) for own in places]).tolist())
        return cls(tuple(cuts), np.concatenate(places).astype(np.int32), np.concatenate(steps), bounds)

    @property
    def cut_leaf(self) -> Cut | None:
        """One of the cuts; None when every device has the whole pool."""
        return next((cut for cut in self.cuts if cut is not None), None)

    @property
    def sizes(self) -> list[int]:
        """Elements that a device holds of each leaf."""
        return [b - a for a, b in itertools.pairwise(self.bounds)]

    def gathered(self, leaves: tuple[MasterLeaf, ...]) -> tuple[MasterLeaf, ...]:
        """The leaves, those whole that have no window here."""
        pairs = zip(leaves, self.cuts, strict=True)
        return tuple(gathered(leaf) if cut is None else leaf for leaf, cut in pairs)

    def local(self, flat: jax.Array) -> jax.Array:
        """This device's elements of a flat pool, `[..., whole]` -> `[..., n]`; within `run`."""
        if self.cut_leaf is None:
            return flat
        index = lax.axis_index(self.cut_leaf.axis)
        return jnp.take(flat, jnp.asarray(self.places) + index * jnp.asarray(self.steps), axis=-1)

    def cut(self, flat: jax.Array) -> list[jax.Array]:
        """One array a leaf of this device's elements: `[..., n]` -> `[..., size of the leaf here]`."""
        return [flat[..., a:b] for a, b in itertools.pairwise(self.bounds)]

    def total(self, sums: Callable[..., jax.Array]) -> jax.Array:
        """`sums(mask)` over the whole pool, of which devices share the leaves that are not cut; within `run`."""
        found = self.cut_leaf
        if found is None:
            return sums(None)
        own = np.repeat([cut is not None for cut in self.cuts], self.sizes)
        once = jnp.where(lax.axis_index(found.axis) == 0, sums(~own), 0)
        return summed(sums(own) + once, found.axis)

    def run(self, function: Callable[..., Any], *, lead: int, sums: bool = False) -> Callable[..., Any]:
        """`function(leaves, *rest)` on every device's own windows.

        Args:
            function: returns one array a leaf, behind `lead` axes; with `sums`, a pair of that and of what
                all devices have in common.
            lead: axes in front of the leaf's.
            sums: whether it returns such a pair.
        """
        found = self.cut_leaf
        if found is None:
            return function
        own = [over() if cut is None else cut.spec for cut in self.cuts]
        outs: Any = [over() if cut is None else behind(cut.spec, lead) for cut in self.cuts]
        outs = (outs, over()) if sums else outs

        def mapped(leaves: tuple[MasterLeaf, ...], *rest: Any) -> Any:
            placement = tuple(halves(s) if isinstance(leaf, Split) else s for leaf, s in zip(leaves, own, strict=True))
            ins = (placement, *(over() for _ in rest))
            return on_windows(function, found, ins=ins, outs=outs)(leaves, *rest)

        return mapped


def halves(spec: Any) -> Any:
    """A placement for both halves of a `Split`."""
    return Split(hi=spec, lo=spec)
