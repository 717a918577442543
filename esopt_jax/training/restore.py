"""The weights of a run after any of its generations: the newest sound checkpoint before it, and a replay of the rest.

Checkpoints that are damaged are passed over; without any, the base weights and the history suffice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from esopt_jax.config import ESConfig
from esopt_jax.core.anchor import anchored
from esopt_jax.core.digest import digest
from esopt_jax.core.master import base_leaf, master_leaf, master_value, view_dtype
from esopt_jax.core.replay import replay
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.update import Update, UpdateStats, make_update
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model, open_model
from esopt_jax.models.lora import with_adapters
from esopt_jax.models.sharding import make_mesh, member_groups
from esopt_jax.training.checkpoints import restore_checkpoint, saved_checkpoints, shapes_of
from esopt_jax.training.history_reader import History
from esopt_jax.types import Master, Specs, View

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Restored:
    """Weights rebuilt from a run.

    Attributes:
        master: the weights.
        digest: of them.
        updates: how many updates lie behind them.
        start: how many of these came with a checkpoint; the rest was replayed.
        stats: what the last replayed update did; None when nothing was replayed or that update was skipped.
        exact: whether every digest that the history knows was met.
        seconds: of the last replayed update.
        unusable: checkpoints, by their updates, that were passed over.
    """

    master: Master
    digest: str
    updates: int
    start: int
    stats: UpdateStats | None
    exact: bool
    seconds: float
    unusable: tuple[int, ...]


def base_model(path: str | Path, es: ESConfig, mesh: tuple[int, int] = (1, 1)) -> Model:
    """The base of a run, its weights still on the disk; with the adapters that its scope asks for.

    Where the mesh splits the model, the devices of its first group will read their parts of them.

    Raises:
        EsoptError: it cannot be had, or has no leaf in the scope.
    """
    place = next(iter(member_groups(make_mesh(mesh))), None)
    model = with_adapters(open_model(path, place), es.scope, seed=es.seed, mesh=place)
    tuned_specs(model.specs, es.scope)
    return model


def base_master(model: Model, es: ESConfig) -> Master:
    """The base weights in the format of a run; shares no memory with the model.

    Of a model that `open_model` gave, each leaf is read, converted and let go before the next. Leaves are committed to
    their device, as those of a checkpoint are: programs of a new run and of one that goes on are then the same.
    """
    master: Master = {}
    device = jax.local_devices()[0]
    for spec in model.specs:
        leaf = master_leaf(model.params[spec.path], spec=spec, format=es.master)
        leaf = jax.tree.map(lambda x: x if x.committed else jax.device_put(x, device), leaf)
        master[spec.path] = jax.block_until_ready(leaf)  # until then what it was made from is held as well
    return master


def base_policy(model: Model, es: ESConfig, dtype: Any) -> View:
    """What the forward pass reads of `base_master`, without ever holding that: leaf by leaf.

    Args:
        model: as `open_model` gave it.
        es: of the run.
        dtype: compute type.
    """
    view: View = {}
    for spec in model.specs:
        leaf = master_leaf(model.params[spec.path], spec=spec, format=es.master)
        view[spec.path] = jax.block_until_ready(base_leaf(leaf, view_dtype(dtype, spec.keep_float32)))
    return view


def run_update(specs: Specs, es: ESConfig, base: Callable[[], Model] | None = None) -> Update:
    """The update of a run: live training, resume and replay all go through it.

    `base` gives the base model, which an anchor needs; its leaves are then read from the disk for every update.
    """
    update = make_update(
        specs,
        population_size=es.population_size,
        plan=es.plan,
        rank=es.rank,
        antithetic=es.antithetic,
        rounding=es.rounding,
        multipliers=es.sigma_multipliers,
        scope=es.scope,
    )
    if es.anchor == 0:
        return update
    assert base is not None, "an anchor needs the base"
    start, of = base().params, {spec.path: spec for spec in specs}

    def leaf(path: str) -> jax.Array:
        return master_value(master_leaf(start[path], spec=of[path], format=es.master))

    return anchored(update, start=leaf, specs=specs, scope=es.scope, strength=es.anchor)


def restore(
    history: History,
    model: Model,
    *,
    updates: int,
    fingerprint: str,
    mesh: tuple[int, int],
    checkpoints: Path | None = None,
) -> Restored:
    """The weights after `updates` generations of a history.

    Args:
        history: of the run.
        model: its base, with weights.
        updates: how many generations to apply.
        fingerprint: of this platform.
        mesh: of this process.
        checkpoints: the run's folder of checkpoints; None replays everything.

    Raises:
        EsoptError: the model is not the run's base, there are not so many generations, or the replay does not give the
            digests of the history although the platform is the same.
    """
    if not 0 <= updates <= len(history.records):
        raise EsoptError(f"generation {updates}: the history has 0 .. {len(history.records)}")
    es = history.header.es
    master = base_master(model, es)
    mark = digest(master)
    if mark != history.header.base_digest:
        raise EsoptError(
            f"the model in {str(model.folder)!r} is not the one that the run began with: its digest is {mark}, that of "
            f"the run's base {history.header.base_digest}; give the right one (--base, or --set model.path to resume)"
        )
    start, unusable = 0, ()
    if checkpoints is not None and saved_checkpoints(checkpoints):
        shapes = shapes_of(master)
        del master  # not two copies at a time
        found, start, unusable = _newest_checkpoint(checkpoints, history, updates, shapes)
        master, mark = (base_master(model, es), mark) if found is None else (found, history.digests[start - 1])
    same = es.plan == "full" or mesh[1] == history.header.mesh[1]
    exact, stats = True, None
    update = run_update(model.specs, es, lambda: model)
    steps = replay(history.records[start:updates], master, seed=es.seed, update=update)
    began, seconds = time.perf_counter(), 0.0
    for record, master, stats in steps:  # noqa: B007 (the last one is returned)
        mark = digest(master)
        began, seconds = (now := time.perf_counter()), now - began
        if record.generation < len(history.digests) and mark != history.digests[record.generation]:
            exact = False
            if same and set(history.platforms[start : record.generation + 1]) == {fingerprint}:
                raise EsoptError(
                    f"replaying generation {record.generation} gives the digest {mark}, the history says "
                    f"{history.digests[record.generation]}: the history was changed after it was written"
                )
    return Restored(master, mark, updates, start, stats, exact, seconds, unusable)


def _newest_checkpoint(
    root: Path, history: History, updates: int, shapes: Master
) -> tuple[Master | None, int, tuple[int, ...]]:
    """The newest sound checkpoint of at most `updates` that the history knows, its length, and those passed over."""
    unusable: list[int] = []
    for found in saved_checkpoints(root):
        if found > len(history.digests):
            log.warning("checkpoint of %d updates: the history knows only %d", found, len(history.digests))
            unusable.append(found)
        elif 0 < found <= updates:
            try:
                master = restore_checkpoint(root, found, history.digests[found - 1], like=shapes)
                return master, found, tuple(unusable)
            except EsoptError as fault:
                log.warning("%s; falling back to what is older", fault)
                unusable.append(found)
    return None, 0, tuple(unusable)
