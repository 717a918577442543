"""Run host calls in threads that can be abandoned, so that an environment that hangs cannot stop a run.

A Python thread cannot be killed. A call that exceeds its time is therefore left behind: its worker is given up, its
late result is thrown away, and a new worker takes its place. Workers are daemon threads, so that a hung one does not
keep the interpreter from exiting, as those of a `ThreadPoolExecutor` do. Threads and not processes: environments are
cheap or wait for I/O, and forking is not safe once JAX is loaded.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic
from typing import Any

log = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0
"""Seconds after which the caller looks again even though no call is due."""


@dataclass(frozen=True)
class Fault:
    """A call that gave no result: it raised, or it exceeded its time. `reason` is one line."""

    reason: str


@dataclass
class _Batch:
    """The calls of one `run`. All fields are guarded by the pool's lock, except `finished`."""

    calls: Sequence[Callable[[], Any]]
    results: list[Any]
    todo: deque[int]
    retries_left: list[int]
    unfinished: int
    finished: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class _Worker:
    """What the caller must know of a thread. `index` is the call it is in, or None; `started` is when it began it."""

    batch: _Batch | None = None
    index: int | None = None
    started: float = 0.0
    abandoned: bool = False


class StepPool:
    """Daemon threads that run calls, each with a time limit and retries.

    Calls must not change anything outside themselves (`Environment.step` returns a new state), since a call may run
    again after it failed. One thread at a time may use a pool.

    Attributes:
        abandoned: workers given up so far, whether or not their call has returned since.
        faults: calls so far that ended as a `Fault`.
        retried: attempts so far beyond the first.

    Example:
        >>> with StepPool(workers=2, timeout_s=5.0, retries=0) as pool:
        ...     pool.run([lambda: 1 + 1, lambda: 1 // 0])
        [2, Fault(reason='ZeroDivisionError: integer division or modulo by zero')]
    """

    def __init__(self, *, workers: int = 8, timeout_s: float = 60.0, retries: int = 1, max_abandoned: int = 512):
        """Start no thread yet.

        Args:
            workers: calls that run at once.
            timeout_s: seconds that an attempt may take, from when a worker begins it.
            retries: further attempts after a first that failed.
            max_abandoned: workers that may hang at the same time; from then on, calls that have not begun become
                faults at once. It bounds threads, each some tens of kB; every attempt at a call that hangs costs one.
        """
        self.abandoned = 0
        self.faults = 0
        self.retried = 0
        self._size = workers
        self._timeout_s = timeout_s
        self._retries = retries
        self._max_hung = max_abandoned
        self._hung = 0
        self._live: set[_Worker] = set()
        self._lock = threading.Lock()
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._closed = False

    def __enter__(self) -> StepPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let idle workers end; return at once, whether or not some hang."""
        self._closed = True
        for _ in self._live:
            self._batches.put(None)

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of `calls`, in order; in the place of one that failed, a `Fault`."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        n = len(calls)
        batch = _Batch(calls, [None] * n, deque(range(n)), [self._retries] * n, n)
        if n == 0:
            return []
        with self._lock:
            if self._hung >= self._max_hung:
                self._give_up_waiting_calls(batch)
            else:
                wanted = min(self._size, n)
                for _ in range(wanted - len(self._live)):
                    self._start_worker()
                for _ in range(wanted):
                    self._batches.put(batch)
        try:
            while not batch.finished.wait(self._abandon_overdue(batch)):
                pass
        finally:  # also after Ctrl-C: what is left of the batch must not run beside the next one
            with self._lock:
                batch.todo.clear()
                batch.retries_left = [0] * n
        return batch.results

    # --- the caller's side, under the lock where it says so ---

    def _abandon_overdue(self, batch: _Batch) -> float:
        """Give up workers that are over their time; return the seconds until the next could be."""
        with self._lock:
            now = monotonic()
            wait = min(self._timeout_s, _LONGEST_WAIT)
            for worker in list(self._live):
                if worker.index is None:
                    continue
                left = worker.started + self._timeout_s - now
                if left > 0:
                    wait = min(wait, left)
                else:
                    self._abandon(worker, batch)
            return wait

    def _abandon(self, worker: _Worker, batch: _Batch) -> None:
        """Lock held. Replace a worker that hangs, or give up what has not begun when too many do."""
        assert worker.index is not None
        worker.abandoned = True
        self._live.discard(worker)
        self.abandoned += 1
        self._hung += 1
        if worker.batch is batch:
            self._fail(batch, worker.index, f"timed out after {self._timeout_s:g} s")
        if self._hung >= self._max_hung:
            self._give_up_waiting_calls(batch)
        elif batch.todo:
            self._start_worker()
            self._batches.put(batch)

    def _give_up_waiting_calls(self, batch: _Batch) -> None:
        """Lock held."""
        reason = f"not run: {self._hung} calls of the environment hang, the limit is {self._max_hung}"
        while batch.todo:
            self._finish(batch, batch.todo.popleft(), Fault(reason))

    def _fail(self, batch: _Batch, index: int, reason: str) -> None:
        """Lock held. Queue a failed call again while it has retries left."""
        if batch.retries_left[index]:
            batch.retries_left[index] -= 1
            self.retried += 1
            batch.todo.append(index)
        else:
            self._finish(batch, index, Fault(reason))

    def _finish(self, batch: _Batch, index: int, result: Any) -> None:
        """Lock held."""
        self.faults += isinstance(result, Fault)
        batch.results[index] = result
        batch.unfinished -= 1
        if batch.unfinished == 0:
            batch.finished.set()

    def _start_worker(self) -> None:
        """Lock held."""
        worker = _Worker()
        threading.Thread(target=self._work, args=(worker,), name="esopt-env", daemon=True).start()
        self._live.add(worker)

    # --- the worker's side ---

    def _work(self, worker: _Worker) -> None:
        while (batch := self._batches.get()) is not None:
            worker.batch = batch
            while self._begin_next(worker, batch):
                index = worker.index
                assert index is not None
                result, reason = _attempt(batch.calls[index])
                with self._lock:
                    worker.index = None
                    if worker.abandoned:
                        self._hung -= 1
                        return
                    if reason is None:
                        self._finish(batch, index, result)
                    else:
                        self._fail(batch, index, reason)

    def _begin_next(self, worker: _Worker, batch: _Batch) -> bool:
        with self._lock:
            if not batch.todo:
                return False
            worker.index = batch.todo.popleft()
            worker.started = monotonic()
            return True


def _attempt(call: Callable[[], Any]) -> tuple[Any, str | None]:
    """Its result, or why there is none. `SystemExit` and the like are faults too: they come from the environment."""
    try:
        return call(), None
    except BaseException as fault:
        log.debug("a call of the environment failed", exc_info=True)
        return None, _reason(fault)


def _reason(fault: BaseException) -> str:
    """`Type: message` in one line of at most 300 characters."""
    try:
        message = " ".join(str(fault).split())
    except Exception:  # an exception of the environment may not even print
        message = "(its message cannot be read)"
    kind = type(fault).__name__
    return f"{kind}: {message}"[:300] if message else kind
