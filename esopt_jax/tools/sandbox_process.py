"""The worker of a sandbox as its owner sees it: a process that is sent frames and answers with frames, in time."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from esopt_jax.tools import frames


class WorkerGoneError(Exception):
    """The worker ended, or spoke no sense."""


class WorkerLateError(Exception):
    """The worker did not answer in time."""


class WorkerProcess:
    """A running worker. Not for several threads at once."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it; the first frame it sends says that it is ready."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] = _starter().submit(self._start, command, env).result()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        os.set_blocking(self._to.fileno(), False)
        os.set_blocking(self._from.fileno(), False)

    def _start(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=env,
            start_new_session=True,
        )

    def send(self, frame: bytes, deadline: float) -> None:
        """Write a frame.

        Raises:
            WorkerGoneError: nobody reads it.
            WorkerLateError: not before `deadline`, in seconds of `time.monotonic`.
        """
        view = memoryview(frame)
        while view:
            self._wait(self._to.fileno(), select.POLLOUT, deadline)
            try:
                view = view[os.write(self._to.fileno(), view) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as fault:
                raise WorkerGoneError from fault

    def receive(self, limit: int, deadline: float) -> bytes:
        """The next frame, of at most `limit` bytes.

        Raises:
            WorkerGoneError: it ended first, or sent more than that.
            WorkerLateError: not before `deadline`, in seconds of `time.monotonic`.
        """
        prefix = self._read(frames.PREFIX.size, deadline)
        try:
            size = frames.body_size(prefix, limit)
        except frames.FrameError as fault:
            raise WorkerGoneError from fault
        return prefix + self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(self._from.fileno(), select.POLLIN, deadline)
            try:
                chunk = os.read(self._from.fileno(), min(size - len(data), 1 << 20))
            except BlockingIOError:
                continue
            if not chunk:
                raise WorkerGoneError
            data += chunk
        return bytes(data)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not poll.poll(remaining * 1000 + 1):
            raise WorkerLateError

    def close(self) -> str:
        """Kill it with all its processes; the end of what it had to say of errors."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._to, self._from):
            with contextlib.suppress(OSError):
                pipe.close()
        with self._errors as errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4000))
            return errors.read().decode(errors="replace").strip()


@functools.cache
def _starter() -> ThreadPoolExecutor:
    """The thread that starts workers.

    A worker dies with the thread that started it, not with the process; this one lives as long as that.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")
