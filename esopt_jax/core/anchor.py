"""A pull towards the weights that a run started from: `w <- w - strength (w - w0)`, after every update.

It is part of the update of a run, so that replay and resume have it too. Rows of `w0` are read when they are needed and
let go again: an anchor costs time, not memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from esopt_jax.core.rounding import MasterLeaf, fields_of, leaf_of, leaf_shape, leaf_value, write_fields
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.update import Update, UpdateStats
from esopt_jax.types import Master, Specs


def anchored(update: Update, *, start: Callable[[str], jax.Array], specs: Specs, scope: str, strength: float) -> Update:
    """`update` followed by the pull; what it tells of its step is without the pull.

    Args:
        update: of a run.
        start: the float32 leaf of a path, as it was at the start.
        specs: the leaf table.
        scope: which leaves are tuned; others have not moved.
        strength: share of the way back, in 0 .. 1.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = (LeafSpec("w", (2,), (None,), 0, "normal", "w"),)
        >>> move = lambda master: ({"w": master["w"] + 4}, None)
        >>> pulled = anchored(move, start=lambda path: jnp.zeros(2), specs=specs, scope="full", strength=0.25)
        >>> pulled({"w": jnp.zeros(2)})[0]["w"].tolist()
        [3.0, 3.0]
    """
    paths = [spec.path for spec in tuned_specs(specs, scope)]

    def run(*arguments: Any) -> tuple[Master, UpdateStats]:
        master, stats = update(*arguments)
        for path in paths:
            master[path] = _pull(master[path], start(path), jnp.float32(strength))
        return master, stats

    return run


@partial(jax.jit, donate_argnums=0)
def _pull(leaf: MasterLeaf, start: jax.Array, strength: jax.Array) -> MasterLeaf:
    value = leaf_value(leaf)
    moved = value - strength * (value - jnp.asarray(start, jnp.float32))
    fields = write_fields(moved.reshape(leaf_shape(leaf)), fields_of(leaf))
    return leaf_of(fields)
