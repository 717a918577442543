"""What a run keeps on each device, in bytes, from shapes and placements alone: nothing is compiled or allocated.

All numbers are of one device of one group (`models.sharding`): groups are alike, each holds the whole model, split over
its devices. What the compiled programs say about the same arrays is in `plan_programs`; the two must agree.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import jax
from jax.sharding import AbstractMesh

from esopt_jax.core.master import view_dtype
from esopt_jax.core.scope import tuned_specs
from esopt_jax.models.sharding import leaf_sharding
from esopt_jax.rollouts.decode import DecodeState, init_state
from esopt_jax.training.plan_scratch import scratch_bytes
from esopt_jax.training.plan_sizing import Sizing
from esopt_jax.types import LeafSpec


@dataclass(frozen=True)
class Footprint:
    """Bytes of one device at one moment.

    Attributes:
        weights: the model as a forward pass reads it, without noise; of a `split` master its upper half. Where the
            master has another type than the compute type this is a copy: held whenever the unperturbed model plays, and
            counted always.
        master: what the master holds beyond `weights`.
        member: copies of the members in flight, or their low-rank factors.
        caches: keys and values, recurrent states, and what else a row remembers, of the rows in flight.
        scratch: computed, not measured: the largest intermediate results of any program.
    """

    weights: int
    master: int
    member: int
    caches: int
    scratch: int

    @property
    def total(self) -> int:
        """All of them at once."""
        return sum(asdict(self).values())

    def as_dict(self) -> dict[str, int]:
        """The parts and their `total`."""
        return {**asdict(self), "total": self.total}


def population_footprint(sizing: Sizing) -> Footprint:
    """What a device holds while members play.

    Raises:
        EsoptError: an axis of the model does not divide over the devices of a group.
    """
    return Footprint(
        weights=weights_bytes(sizing),
        master=beyond_bytes(sizing),
        member=member_bytes(sizing),
        caches=state_bytes(sizing, (sizing.members, sizing.columns)),
        scratch=scratch_bytes(sizing, (sizing.members, sizing.columns)),
    )


def evaluation_footprint(sizing: Sizing) -> Footprint:
    """What a device holds while the unperturbed model plays."""
    return Footprint(
        weights=weights_bytes(sizing),
        master=beyond_bytes(sizing),
        member=0,
        caches=state_bytes(sizing, (1, sizing.evaluated)),
        scratch=scratch_bytes(sizing, (1, sizing.evaluated)),
    )


# --- weights ----------------------------------------------------------------------------------------------------------


def weights_bytes(sizing: Sizing) -> int:
    """The unperturbed model in the types that the forward pass reads."""
    return sum(sizing.local_size(spec) * _view_bytes(spec, sizing) for spec in sizing.specs)


def beyond_bytes(sizing: Sizing) -> int:
    """The master without what the forward pass can read as it is."""
    return sum(sizing.local_size(s) * (master_itemsize(s, sizing) - _shared_bytes(s, sizing)) for s in sizing.specs)


def member_bytes(sizing: Sizing) -> int:
    """What the members in flight have to themselves."""
    es, per_member = sizing.config.es, 0
    for spec in tuned_specs(sizing.specs, es.scope):
        size = sizing.local_size(spec)
        if es.plan == "low_rank" and spec.is_matrix:
            size = es.rank * sum(_factor_sizes(spec, sizing.mesh))
        per_member += size * _view_bytes(spec, sizing)
    return sizing.members * per_member


def common_bytes(sizing: Sizing) -> int:
    """What the members in flight read of the base: matrices with factors, and leaves that are not tuned."""
    es = sizing.config.es
    own = {s.path for s in tuned_specs(sizing.specs, es.scope) if es.plan == "full" or not s.is_matrix}
    return sum(sizing.local_size(spec) * _view_bytes(spec, sizing) for spec in sizing.specs if spec.path not in own)


def master_bytes(sizing: Sizing, *, whole: bool = False) -> int:
    """The master on one device; or, `whole`, of all devices of a group together, which is the size of a checkpoint."""
    sizes = {s.path: s.size if whole else sizing.local_size(s) for s in sizing.specs}
    return sum(sizes[spec.path] * master_itemsize(spec, sizing) for spec in sizing.specs)


def tuned_master_bytes(sizing: Sizing) -> int:
    """What of the master the update writes, on one device."""
    tuned = tuned_specs(sizing.specs, sizing.config.es.scope)
    return sum(sizing.local_size(spec) * master_itemsize(spec, sizing) for spec in tuned)


def master_itemsize(spec: LeafSpec, sizing: Sizing) -> int:
    """Bytes a weight in the master; a `split` keeps two halves of two."""
    return 2 if sizing.config.es.master == "bfloat16" and not spec.keep_float32 else 4


def _view_bytes(spec: LeafSpec, sizing: Sizing) -> int:
    return view_dtype(sizing.dtype, spec.keep_float32).itemsize


def _shared_bytes(spec: LeafSpec, sizing: Sizing) -> int:
    """Bytes a weight of the master that a forward pass reads without a copy."""
    wanted, stored = _view_bytes(spec, sizing), master_itemsize(spec, sizing)
    halves = sizing.config.es.master == "split" and spec.is_matrix and not spec.keep_float32
    return wanted if wanted == (2 if halves else stored) else 0


def _factor_sizes(spec: LeafSpec, mesh: AbstractMesh) -> tuple[int, int]:
    """Rows and columns of the factors on a device: that which the leaf is cut along is cut with it."""
    here = leaf_sharding(spec, mesh).shard_shape(spec.shape)
    return math.prod(here[: spec.inputs]), math.prod(here[spec.inputs :])


# --- rows -------------------------------------------------------------------------------------------------------------


def rows_state(sizing: Sizing, shape: tuple[int, int]) -> DecodeState:
    """Shapes and placements of everything that rows `(members, rows a member)` of a group remember."""

    def new() -> DecodeState:
        return init_state(sizing.decode, shape, sizing.flags.penalties, dtype=sizing.dtype)

    with jax.sharding.use_abstract_mesh(sizing.mesh):
        return jax.eval_shape(new)


def state_bytes(sizing: Sizing, shape: tuple[int, int]) -> int:
    """Bytes of `rows_state` on one device."""
    return sum(local_bytes(x) for x in jax.tree.leaves(rows_state(sizing, shape)))


def local_bytes(x: jax.ShapeDtypeStruct) -> int:
    """Bytes of an array on one device."""
    shape = x.shape if x.sharding is None else x.sharding.shard_shape(x.shape)
    return math.prod(shape) * x.dtype.itemsize
