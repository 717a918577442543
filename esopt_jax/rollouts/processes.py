"""Several processes, on one host or on many, that play one population and tell each other what came of it.

Each process holds the model, plays its share of the episodes on its own devices and computes the same update. Weights
and noise never cross; the records of episodes do, through the key-value store of `jax.distributed`, which needs no
collective of devices: a process that waits for another can therefore notice that it is gone.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import jax

from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.rollouts.trajectory import from_record, to_line
from esopt_jax.types import Trajectory

T = TypeVar("T")

_DATA, _FAULT = b"+", b"-"
_POLL_MS = 1000
_LEAVE_S = 10.0


class _Exchanges:
    """How many exchanges this process has begun. All processes begin the same ones in the same order."""

    begun = 0


@contextmanager
def joined(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> Iterator[None]:
    """Make this process one of several within the block; before anything else asks for devices.

    Args:
        coordinator: `HOST:PORT` at which process 0 can be reached; None where SLURM or Open MPI tells all three.
        processes: how many there are.
        process: the number of this one, from 0.

    Raises:
        EsoptError: the others cannot be reached, or nothing tells who they are.
    """
    jax.config.update("jax_enable_recoverability", True)  # else the end of one process aborts all others
    try:
        jax.distributed.initialize(
            coordinator, processes, process, local_device_ids=_devices_of_the_node(), heartbeat_timeout_seconds=30
        )
    except (ValueError, RuntimeError) as fault:
        raise EsoptError(f"cannot join the other processes: {_first_line(fault)}") from fault
    try:
        yield
    finally:
        deadline = time.monotonic() + _LEAVE_S
        while is_owner() and len(_live()) > 1 and time.monotonic() < deadline:  # they speak through this one
            time.sleep(0.1)
        jax.distributed.shutdown()


def _devices_of_the_node() -> list[int] | None:
    """All GPUs that SLURM gave to the only task of a node; JAX would take the first alone. None leaves it to JAX."""
    tasks, nodes, gpus = (
        os.environ.get(name) for name in ("SLURM_NTASKS", "SLURM_STEP_NUM_NODES", "CUDA_VISIBLE_DEVICES")
    )
    return list(range(len(gpus.split(",")))) if gpus and tasks is not None and tasks == nodes else None


def count() -> int:
    """Processes of this run; unlike `jax.process_count` it starts no device, so numerics can still be set."""
    return int(_state().num_processes)


def index() -> int:
    """The number of this one, from 0."""
    return int(_state().process_id)


def is_owner() -> bool:
    """Whether this process keeps the run folder: the first of several does."""
    return index() == 0


def share(items: Sequence[T]) -> Sequence[T]:
    """The consecutive part of `items` that is this process's; parts differ by one item at most."""
    n, i = count(), index()
    return items[i * len(items) // n : (i + 1) * len(items) // n]


def gathered(own: bytes) -> list[bytes]:
    """What every process gave, in their order.

    Raises:
        StoppedError: one of them failed, for the reason that it told, or is gone.
    """
    if count() == 1:
        return [own]
    number, me = _Exchanges.begun, index()
    _Exchanges.begun += 1
    _client().key_value_set_bytes(_key(number, me), _DATA + own)
    found = [own if peer == me else _told(number, peer) for peer in range(count())]
    if number:  # whoever has begun this exchange has read all of the one before
        _client().key_value_delete(_key(number - 1, me))
    return found


def of_all(own: list[Trajectory]) -> list[Trajectory]:
    """The episodes of all processes, in their order.

    Raises:
        StoppedError: as `gathered`.
    """
    if count() == 1:
        return own
    parts = gathered(gzip.compress(b"".join(map(to_line, own)), 1))
    return [from_record(json.loads(line)) for part in parts for line in gzip.decompress(part).splitlines()]


def agreed(text: str) -> bool:
    """Whether all processes have the same `text`."""
    return len(set(gathered(text.encode()))) == 1


@contextmanager
def peers_told() -> Iterator[None]:
    """Wait for all processes at the end of the block; tell them if it fails, so that none waits for this one."""
    try:
        yield
        gathered(b"")
    except BaseException as fault:
        if count() > 1:
            with suppress(jax.errors.JaxRuntimeError):  # process 0 itself is gone
                key = _key(_Exchanges.begun, index())
                _client().key_value_set_bytes(key, _FAULT + _first_line(fault).encode())
        raise


def _told(number: int, peer: int) -> bytes:
    while True:
        gone = peer not in _live()  # asked first: what it left behind before it went still counts
        try:
            answer: bytes = _client().blocking_key_value_get_bytes(_key(number, peer), _POLL_MS)
        except jax.errors.JaxRuntimeError as fault:
            if "DEADLINE_EXCEEDED" not in str(fault):
                raise StoppedError(f"process {peer} cannot be reached: {_first_line(fault)}") from fault
            if gone:
                raise StoppedError(f"process {peer} of {count()} is gone") from None
            continue
        if answer.startswith(_FAULT):
            raise StoppedError(f"process {peer} of {count()}: {answer[1:].decode(errors='replace')}")
        return answer[1:]


def _live() -> Sequence[int]:
    return _client().get_live_nodes(list(range(count())))


def _client() -> Any:
    return _state().client


def _state() -> Any:
    # JAX offers no public way to its key-value store; its own `multihost_utils` and orbax go this way too.
    from jax._src.distributed import global_state

    return global_state


def _key(number: int, process: int) -> str:
    return f"esopt_jax/{number}/{process}"


def _first_line(fault: BaseException) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0]
