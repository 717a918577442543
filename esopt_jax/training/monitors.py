"""Dashboards: every metrics row is also sent where `log.monitor` says. `metrics.jsonl` stays the truth.

The step of a row is its generation. A resumed run continues on the same dashboard: TensorBoard reads one more event
file of the folder, trackio the run of the same name. What was sent stays; a generation that is played again, since its
row was lost, is sent again, and both points of that step are drawn.

A monitor never stops a run: one that fails is logged once and dropped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import math
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from esopt_jax.config import Config, to_dict
from esopt_jax.errors import EsoptError

log = logging.getLogger(__name__)

Send = Callable[[Mapping[str, Any]], None]
"""Takes a row of `metrics.jsonl`."""

PACKAGES = {"tensorboard": "tensorboardX", "trackio": "trackio"}
"""Value of `log.monitor` -> the package it needs, which the extra of that name installs."""


def check_monitor(config: Config) -> None:
    """Refuse a monitor whose package is missing.

    Raises:
        EsoptError: with the command that installs it.
    """
    name = config.log.monitor
    package = PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise EsoptError(
            f"log.monitor is {name!r}, which needs the package {package}: pip install 'esopt-jax[{name}]', "
            "or set log.monitor=none"
        )


@contextmanager
def monitor(config: Config, run_dir: Path) -> Iterator[Send]:
    """Yield the function that sends a row; without a monitor it does nothing.

    Args:
        config: resolved config of the run.
        run_dir: its folder, which exists.

    Raises:
        EsoptError: as `check_monitor`, before anything is yielded.
    """
    check_monitor(config)
    if config.log.monitor == "none":
        yield lambda row: None
        return
    guard = _Guard(config.log.monitor)
    with contextlib.ExitStack() as stack:
        guard.open(stack, _MONITORS[config.log.monitor], config, run_dir)
        yield guard.send


class _Guard:
    """Between a run and a monitor: whatever the monitor raises is logged once, and then it is left alone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._send: Callable[[dict[str, float], int], None] | None = None

    def open(self, stack: contextlib.ExitStack, make: Any, config: Config, run_dir: Path) -> None:
        monitor_of_run = make(config, run_dir)
        with self._dropped_if_it_fails():
            self._send = monitor_of_run.__enter__()
            stack.callback(self._close, monitor_of_run)

    def send(self, row: Mapping[str, Any]) -> None:
        if self._send is not None:
            with self._dropped_if_it_fails():
                self._send(_scalars(row), int(row["generation"]))

    def _close(self, monitor_of_run: AbstractContextManager[Any]) -> None:
        failed_before = self._send is None
        with contextlib.suppress(Exception) if failed_before else self._dropped_if_it_fails():
            monitor_of_run.__exit__(None, None, None)

    @contextmanager
    def _dropped_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:  # whatever a dashboard's client raises
            self._send = None
            reason = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
            log.warning("monitor %s dropped, the run goes on: %s", self._name, reason)


def _scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row without its step; what does not exist (null) is left out."""
    numbers = {name: value for name, value in row.items() if isinstance(value, int | float) and name != "generation"}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


@contextmanager
def _tensorboard(config: Config, run_dir: Path) -> Iterator[Callable[[dict[str, float], int], None]]:
    """An event file in RUN/tensorboard/ that names no host, on the disk after every row.

    `SummaryWriter` would write from a thread of its own, and wait for ever once that has met a full disk.
    """
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.record_writer import RecordWriter

    folder = run_dir / "tensorboard"
    folder.mkdir(exist_ok=True)
    earlier = len(list(folder.glob("*tfevents*")))  # files are read in the order of their names
    writer = RecordWriter(str(folder / f"events.out.tfevents.{int(time.time())}.{earlier}"))

    def write(**what: Any) -> None:
        writer.write(Event(wall_time=time.time(), **what).SerializeToString())
        writer.flush()

    def send(scalars: dict[str, float], step: int) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        write(step=step, summary=Summary(value=values))

    write(file_version="brain.Event:2")
    yield send
    writer.close()


@contextmanager
def _trackio(config: Config, run_dir: Path) -> Iterator[Callable[[dict[str, float], int], None]]:
    """A run of the project that is called after the preset; RUN/trackio.json remembers its name for a resume."""
    import trackio

    identity = _trackio_identity(config, run_dir)
    with contextlib.redirect_stdout(sys.stderr):  # its greetings are no results
        trackio.init(**identity, config=to_dict(config), resume="allow", embed=False)
    yield lambda scalars, step: trackio.log(scalars, step=step)
    with contextlib.redirect_stdout(sys.stderr):
        trackio.finish()


def _trackio_identity(config: Config, run_dir: Path) -> dict[str, str]:
    """`project` and `name`: unique, since another run may use a folder of the same name."""
    path = run_dir / "trackio.json"
    if not path.exists():
        name = f"{run_dir.resolve().name}-{secrets.token_hex(3)}"
        path.write_text(json.dumps({"project": config.preset, "name": name}) + "\n", encoding="utf-8")
    identity: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return identity


_MONITORS = {"tensorboard": _tensorboard, "trackio": _trackio}
