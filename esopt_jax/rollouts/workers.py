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
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

log = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0
"""Seconds after which the caller looks again even though no call is due."""


@dataclass(frozen=True)
class Fault:
    """A call that gave no result: it raised, or it exceeded its time. `reason` is one line."""

    reason: str


@dataclass(eq=False)
class _Call:
    """A call that was handed in. `round` tells those that have been discarded since."""

    name: Hashable
    function: Callable[[], Any]
    retries_left: int
    round: int


@dataclass(eq=False)
class _Worker:
    """What the caller must know of a thread: the call it is in, or None, and when it began it."""

    call: _Call | None = None
    started: float = 0.0
    abandoned: bool = False


class StepPool:
    """Daemon threads that run calls, each with a time limit and retries.

    Calls must not change anything outside themselves (`Environment.step` returns a new state), since a call may run
    again after it failed. One thread at a time may use a pool: it hands calls in (`submit`) and takes results out
    (`collect`), or does both at once (`run`).

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
        self._round = 0
        self._open = 0
        self._todo: deque[_Call] = deque()
        self._results: dict[Hashable, Any] = {}
        self._live: set[_Worker] = set()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._news = threading.Condition(self._lock)
        self._closed = False

    def __enter__(self) -> StepPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let idle workers end; return at once, whether or not some hang."""
        with self._lock:
            self._closed = True
            self._work.notify_all()

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of `calls`, in order; in the place of one that failed, a `Fault`."""
        found: dict[Hashable, Any] = {}
        try:
            self.submit(dict(enumerate(calls)))
            while len(found) < len(calls):
                found |= self.collect()
        finally:  # also after Ctrl-C: what is left must not run beside what comes next
            self.discard()
        return [found[index] for index in range(len(calls))]

    def submit(self, calls: Mapping[Hashable, Callable[[], Any]]) -> None:
        """Begin calls; `collect` gives their results under the same names, of which no two may be open at a time."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._open += len(calls)
            self._todo.extend(_Call(name, call, self._retries, self._round) for name, call in calls.items())
            if self._hung >= self._max_hung:
                self._give_up_waiting_calls()
            for _ in range(min(self._size, len(self._todo)) - len(self._live)):
                self._start_worker()
            self._work.notify(len(calls))

    def collect(self, *, wait: bool = True) -> dict[Hashable, Any]:
        """The results that are there; with `wait`, at least one of them unless no call is open."""
        with self._lock:
            while True:
                due = self._abandon_overdue()
                if self._results or not wait or not self._open:
                    found, self._results = self._results, {}
                    self._open -= len(found)
                    return found
                self._news.wait(due)

    def discard(self) -> None:
        """Forget the calls that are open; those that a worker is in run to their end, unheard."""
        with self._lock:
            self._round += 1
            self._open = 0
            self._todo.clear()
            self._results.clear()

    # --- under the lock ---

    def _abandon_overdue(self) -> float:
        """Give up workers that are over their time; return the seconds until the next could be."""
        now = monotonic()
        wait = min(self._timeout_s, _LONGEST_WAIT)
        for worker in list(self._live):
            if worker.call is None:
                continue
            left = worker.started + self._timeout_s - now
            if left > 0:
                wait = min(wait, left)
            else:
                self._abandon(worker, worker.call)
        return wait

    def _abandon(self, worker: _Worker, call: _Call) -> None:
        """Replace a worker that hangs, or give up what has not begun when too many do."""
        worker.abandoned = True
        self._live.discard(worker)
        self.abandoned += 1
        self._hung += 1
        self._fail(call, f"timed out after {self._timeout_s:g} s")
        if self._hung >= self._max_hung:
            self._give_up_waiting_calls()
        elif self._todo:
            self._start_worker()

    def _give_up_waiting_calls(self) -> None:
        reason = f"not run: {self._hung} calls of the environment hang, the limit is {self._max_hung}"
        while self._todo:
            self._finish(self._todo.popleft(), Fault(reason))

    def _fail(self, call: _Call, reason: str) -> None:
        """Queue a failed call again while it has retries left."""
        if call.round != self._round:
            return
        if call.retries_left:
            call.retries_left -= 1
            self.retried += 1
            self._todo.append(call)
            self._work.notify()
        else:
            self._finish(call, Fault(reason))

    def _finish(self, call: _Call, result: Any) -> None:
        if call.round != self._round:
            return
        self.faults += isinstance(result, Fault)
        self._results[call.name] = result
        self._news.notify()

    def _start_worker(self) -> None:
        worker = _Worker()
        threading.Thread(target=self._serve, args=(worker,), name="esopt-env", daemon=True).start()
        self._live.add(worker)

    # --- the worker's side ---

    def _serve(self, worker: _Worker) -> None:
        while (call := self._next_call(worker)) is not None:
            result, reason = _attempt(call.function)
            with self._lock:
                worker.call = None
                if worker.abandoned:
                    self._hung -= 1
                    return
                if reason is None:
                    self._finish(call, result)
                else:
                    self._fail(call, reason)

    def _next_call(self, worker: _Worker) -> _Call | None:
        with self._lock:
            while not self._todo and not self._closed:
                self._work.wait()
            if not self._todo:
                return None
            worker.call = self._todo.popleft()
            worker.started = monotonic()
            return worker.call


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
