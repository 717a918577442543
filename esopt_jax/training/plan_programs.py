"""The decode of a population evaluation, compiled ahead of time for forced CPU devices and examined.

No weight exists and nothing runs. A layer pattern (three DeltaNet layers and one of attention, say) is repeated through
the model, and every number here is linear in the repetitions: by default the decode is compiled with one and with two
of them, and the rest follows exactly. `whole` compiles all layers. The programs of the
noise are in `plan_noise`.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from esopt_jax.core.master import master_leaf
from esopt_jax.core.perturb import perturb_population
from esopt_jax.core.rounding import MasterLeaf
from esopt_jax.models.architecture import Architecture
from esopt_jax.models.load import Model
from esopt_jax.models.qwen3_5_config import Qwen35
from esopt_jax.models.sharding import leaf_sharding, make_mesh
from esopt_jax.rollouts.engine import make_engine
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.plan_bytes import rows_state
from esopt_jax.training.plan_sizing import Sizing, sizing_of
from esopt_jax.types import LeafSpec, Master

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")

QUICKLY: dict[str, Any] = {"xla_backend_optimization_level": 0}
"""Nothing will run: machine code need not be good. Partitioning and the sizes of buffers are decided before it."""

_CALL = re.compile(rf"\s({'|'.join(COLLECTIVES)})(?:-start)?\(")


@dataclass(frozen=True)
class Found:
    """What compiled programs say about themselves, on one device.

    Attributes:
        arguments: bytes of what they are given.
        aliases: bytes of results that are written over an argument.
        outputs: bytes of results, aliases included.
        flops: floating-point operations, the body of a loop counted once.
        collectives: operations in which devices exchange something, by name.
    """

    arguments: int
    aliases: int
    outputs: int
    flops: float
    collectives: dict[str, int]

    def combined(self, other: Found, times: int = 1) -> Found:
        """These and `times` the others; a negative number takes them away."""
        numbers = {
            f.name: getattr(self, f.name) + times * getattr(other, f.name)
            for f in dataclasses.fields(self)
            if f.name != "collectives"
        }
        counts = {name: self.collectives[name] + times * other.collectives[name] for name in COLLECTIVES}
        return Found(**numbers, collectives=counts)


NOTHING = Found(0, 0, 0, 0.0, dict.fromkeys(COLLECTIVES, 0))


def examine(compiled: Any) -> Found:
    """Bytes, operations and collectives of a compiled program."""
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
    counts = Counter(_CALL.findall(compiled.as_text()))
    return Found(
        arguments=memory.argument_size_in_bytes,
        aliases=memory.alias_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        flops=float(cost.get("flops", 0.0)),
        collectives={name: counts[name] for name in COLLECTIVES},
    )


# --- decode -----------------------------------------------------------------------------------------------------------


def decode_program(sizing: Sizing, *, whole: bool = False) -> Found:
    """The loop that writes replies, for the rows of one pass of a group; operations are those of one step.

    Args:
        sizing: of the run.
        whole: compile all layers, not one and two periods.
    """
    period, count = layer_period(sizing.arch)
    if whole or count <= 2:
        return _decode(sizing, sizing.arch)
    one, two = (_decode(sizing, _with_layers(sizing.arch, period * n)) for n in (1, 2))
    return one.combined(two.combined(one, -1), count - 1)


def layer_period(arch: Architecture) -> tuple[int, int]:
    """Layers after which the pattern repeats, and how often it is there.

    Example:
        >>> from esopt_jax.models.registry import load_architecture
        >>> layer_period(load_architecture("qwen3.5-27b")), layer_period(load_architecture("llama-3.1-8b"))
        ((4, 16), (1, 32))
    """
    kinds = arch.layer_types if isinstance(arch, Qwen35) else ("layer",) * arch.num_hidden_layers
    depth = len(kinds)
    period = next(p for p in range(1, depth + 1) if depth % p == 0 and kinds[:p] * (depth // p) == kinds)
    return period, depth // period


def _with_layers(arch: Architecture, depth: int) -> Architecture:
    kinds = {"layer_types": arch.layer_types[:depth]} if isinstance(arch, Qwen35) else {}
    return dataclasses.replace(arch, num_hidden_layers=depth, **kinds)


def _decode(sizing: Sizing, arch: Architecture) -> Found:
    shallow = sizing_of(arch, sizing.config)
    mesh, rollout, es = group_of(sizing), sizing.config.rollout, sizing.config.es
    model = Model(arch, shallow.specs, {}, {}, None, (), arch.vocab_size, Path())
    stop: Any = SimpleNamespace(stop_ids=shallow.decode.eos_ids)
    engine = make_engine(model, stop, rollout=rollout, dtype=sizing.dtype, mesh=mesh)

    def views(members: jax.Array, master: Master) -> Any:
        at = {"plan": es.plan, "rank": es.rank, "antithetic": es.antithetic, "scope": es.scope}
        return perturb_population(0, 0, members, master, specs=shallow.specs, sigma=0.1, dtype=sizing.dtype, **at)

    with within(mesh):
        members = jax.ShapeDtypeStruct((sizing.members,), jnp.int32)
        view = jax.eval_shape(views, members, {s.path: master_shape(s, shallow, mesh) for s in shallow.specs})
        state = _on(mesh, rows_state(shallow, (sizing.members, sizing.columns)))
        return examine(engine.write.lower(True, view, state, engine.segment, make_sampling(rollout)).compile(QUICKLY))


# --- arguments without values -----------------------------------------------------------------------------------------


def master_shape(spec: LeafSpec, sizing: Sizing, mesh: Mesh | None) -> MasterLeaf:
    """A leaf of the master, as the run's own code would make it."""
    home = None if mesh is None else leaf_sharding(spec, mesh)
    stored = partial(master_leaf, spec=spec, format=sizing.config.es.master)
    leaf = jax.eval_shape(stored, jax.ShapeDtypeStruct(spec.shape, jnp.float32))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=home), leaf)


def _on(mesh: Mesh | None, tree: Any) -> Any:
    """Shapes placed on an abstract mesh, on the devices of a group."""

    def place(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        home = None if mesh is None else NamedSharding(mesh, x.sharding.spec)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=home)

    return jax.tree.map(place, tree)


def group_of(sizing: Sizing) -> Mesh | None:
    """A group of devices, where a model is split."""
    return None if sizing.mesh.size == 1 else make_mesh((1, sizing.mesh.size))


def within(mesh: Mesh | None) -> AbstractContextManager[Any]:
    """The context of a group's programs."""
    return nullcontext() if mesh is None else jax.set_mesh(mesh)
