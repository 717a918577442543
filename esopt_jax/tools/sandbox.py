"""Runs programs that a model wrote where they can do no harm: no network, no files, limits on all they use.

A sandbox is a process in bubblewrap that has NumPy loaded and forks a fresh child for every call, so starting it is
paid for once and nothing that a program changes is there for the next one. Arrays go in, arrays come out. What comes
out is a stranger's: a program can reach everything in its own process, also the code that calls it, so whoever asks
has to check the numbers.

A program may use `cpu_s` seconds of CPU time, whatever else the machine does; the clock is there for one that sleeps.
Memory is limited for each of its processes, not for their sum.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.tools import frames
from esopt_jax.tools.sandbox_command import ENVIRONMENT, INSTALL, start_command
from esopt_jax.tools.sandbox_process import WorkerGoneError, WorkerLateError, WorkerProcess

_START_S = 120.0
_SLACK_S = 30.0
_SLACK_BYTES = 1 << 20
_ATTEMPTS = 2
_SMALLEST = {"cpu_s": 0.0, "wall_s": 0.0, "memory_bytes": 2**28, "output_bytes": 1, "file_bytes": 2**12, "processes": 1}
_CHECK = """
import mmap
import numpy

def run(program, inputs):
    open(numpy.__file__).close()
    return {"answer": inputs["number"] + program.one}
"""
"""Shows that what is not loaded yet can be: else every program that imports it would be invalid."""


@dataclass(frozen=True)
class Limits:
    """What one call may use.

    Attributes:
        cpu_s: seconds of CPU time, of all its processes together. One that uses more is stopped within a
            tenth more and two seconds.
        wall_s: seconds by the clock.
        memory_bytes: address space of each process; Python with NumPy and SciPy takes about 200 MB of it.
        output_bytes: what it returns, and what it prints.
        file_bytes: of one file and of all files together; they are gone after the call.
        processes: its processes and threads at any time, itself included.

    Example:
        >>> Limits(cpu_s=0)
        Traceback (most recent call last):
        esopt_jax.errors.EsoptError: cpu_s is 0; it must be above 0
    """

    cpu_s: float = 20.0
    wall_s: float = 120.0
    memory_bytes: int = 2**31
    output_bytes: int = 2**26
    file_bytes: int = 2**26
    processes: int = 8

    def __post_init__(self) -> None:
        problems = []
        for name, least in _SMALLEST.items():
            value = getattr(self, name)
            if not (value > 0 and value >= least):
                problems.append(f"{name} is {value}; it must be {f'at least {least}' if least else 'above 0'}")
        if problems:
            raise EsoptError("; ".join(problems))


@dataclass(frozen=True)
class Done:
    """A program that answered.

    Attributes:
        outputs: the arrays that `run` returned. Unchecked.
        cpu_s: CPU time of all its processes.
        wall_s: time by the clock.
        printed: its standard output and error.
    """

    outputs: dict[str, np.ndarray]
    cpu_s: float
    wall_s: float
    printed: str


@dataclass(frozen=True)
class Invalid:
    """A program that failed, or was stopped.

    Attributes:
        reason: why, in one line; partly the words of the program.
        cpu_s: CPU time of all its processes.
        wall_s: time by the clock.
        printed: its standard output and error, up to the limit.
    """

    reason: str
    cpu_s: float
    wall_s: float
    printed: str


@dataclass
class Sandbox:
    r"""One place for programs, one at a time; further threads wait. Open several to run several.

    Attributes:
        limits: of every call.
        unsafe: without bubblewrap: same worker, same limits on time, memory and files, but programs can read, write
            and reach whatever this process can, and the number of their processes is not limited.

    Example:
        >>> runner = "def run(program, inputs):\n    return {'y': program.square(inputs['x'])}"
        >>> with Sandbox() as sandbox:
        ...     good = sandbox.run("def square(x): return x * x", runner, {"x": np.arange(4)})
        ...     bad = sandbox.run("def square(x): return x * y", runner, {"x": np.arange(4)})
        >>> good.outputs["y"]
        array([0, 1, 4, 9])
        >>> bad.reason
        "NameError: name 'y' is not defined (line 1 of the program)"
    """

    limits: Limits = field(default_factory=Limits)
    unsafe: bool = False
    _worker: WorkerProcess | None = field(default=None, init=False, repr=False)
    _calls: int = field(default=0, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __enter__(self) -> Sandbox:
        """Start the worker.

        Raises:
            EsoptError: bubblewrap is missing or may not make namespaces.
        """
        if self.unsafe:
            warnings.warn("unsafe=True: programs run without a sandbox, as the user you are", RuntimeWarning, 2)
        with self._lock:
            self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        """End the worker and all its processes."""
        with self._lock:
            self._stop()

    def run(self, code: str, runner: str, inputs: Mapping[str, Any]) -> Done | Invalid:
        """Run a program.

        Args:
            code: Python source of a stranger.
            runner: Python source that defines `run(program, inputs)`, which returns a dict of arrays; `program` is
                the module that `code` makes.
            inputs: arrays, or numbers, of the dtypes `frames.DTYPES`.

        Raises:
            EsoptError: the inputs cannot be sent, or the sandbox itself fails.
        """
        try:
            specs, payload = frames.pack_arrays(inputs)
        except frames.FrameError as fault:
            raise EsoptError(f"inputs of a program: {fault}") from fault
        with self._lock:
            for _ in range(_ATTEMPTS):
                if self._worker is None:
                    self._start()
                try:
                    return self._ask({"code": code, "runner": runner, "arrays": specs}, payload)
                except WorkerGoneError:
                    self._stop()
                except WorkerLateError:
                    self._stop()
                    return Invalid(
                        f"took longer than {self.limits.wall_s:g} s by the clock", 0.0, self.limits.wall_s, ""
                    )
                except BaseException:  # a person's Ctrl-C: an answer that nobody waits for would meet the next call
                    self._stop()
                    raise
            return Invalid(f"ended the worker of the sandbox, {_ATTEMPTS} times", 0.0, 0.0, "")

    def _start(self) -> None:
        """A new worker, which has shown that it works."""
        command = start_command(dataclasses.asdict(self.limits), unsafe=self.unsafe)
        self._worker = WorkerProcess(command, ENVIRONMENT)
        specs, payload = frames.pack_arrays({"number": 1})
        try:
            self._worker.receive(_SLACK_BYTES, time.monotonic() + _START_S)
            answer = self._ask({"code": "one = 1", "runner": _CHECK, "arrays": specs}, payload)
        except (WorkerGoneError, WorkerLateError) as fault:
            raise EsoptError(self._fault("does not start")) from fault
        except BaseException:
            self._stop()
            raise
        if not isinstance(answer, Done) or answer.outputs["answer"].tolist() != 2:
            raise EsoptError(self._fault(f"does not work ({getattr(answer, 'reason', 'a wrong answer')})"))

    def _fault(self, what: str) -> str:
        said = self._stop().splitlines()
        hint = f"; allow bubblewrap user namespaces, or {INSTALL}" if "bwrap:" in "".join(said) else ""
        return f"the sandbox {what}: {said[-1] if said else 'it said nothing'}{hint}"

    def _stop(self) -> str:
        worker, self._worker = self._worker, None
        return worker.close() if worker is not None else ""

    def _ask(self, header: Mapping[str, Any], payload: bytes) -> Done | Invalid:
        assert self._worker is not None
        self._calls += 1
        deadline = time.monotonic() + self.limits.wall_s + _SLACK_S
        self._worker.send(frames.pack({"call": self._calls, **header}, payload), deadline)
        limit = 2 * self.limits.output_bytes + _SLACK_BYTES
        try:
            reply, sent = frames.unpack(self._worker.receive(limit, deadline), limit)
        except frames.FrameError as fault:
            raise WorkerGoneError from fault
        if reply.get("call") != self._calls:
            raise WorkerGoneError
        if "failed" in reply:
            self._stop()
            raise EsoptError(f"the sandbox could not confine a program: {reply['failed']}")
        return _result(reply, sent, limit)


def _result(reply: Mapping[str, Any], sent: bytes, limit: int) -> Done | Invalid:
    """What came of a call: the supervisor's words, then the program's."""
    printed = sent[: reply["printed"]].decode(errors="replace")
    used = (reply["cpu_s"], reply["wall_s"], printed)
    if reply["reason"] is not None:
        return Invalid(reply["reason"], *used)
    try:
        answer, payload = frames.unpack(sent[reply["printed"] :], limit)
        if "error" in answer:
            return Invalid(_one_line(answer["error"]), *used)
        return Done(frames.unpack_arrays(answer.get("arrays"), payload), *used)
    except frames.FrameError as fault:
        return Invalid(_one_line(f"returned no readable answer: {fault}"), *used)


def _one_line(text: Any) -> str:
    """A stranger's words, fit to print."""
    words = " ".join(str(text)[:500].split())
    return "".join(letter if letter.isprintable() else "?" for letter in words) or "failed without a reason"
