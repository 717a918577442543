"""The worker of a sandbox: it has NumPy loaded, and forks a process for every call.

It runs inside bubblewrap, without the rest of the package: the standard library, NumPy and its neighbours here. Four
generations of processes: the worker reads calls and never sees a stranger's code; a supervisor, one per call, makes
new namespaces and an empty home, keeps the time and writes the reply; the first process of the new process namespace
counts what the others use, and nobody in there can kill it; its child runs the program. When the first process ends
the kernel ends all others, wherever they hid, and with the namespaces go their files and their shared memory. The
child holds two pipes, made for this call, and nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

# Relative, since here this is no part of esopt_jax: see `sandbox_command.BOOT`.
from . import frames, kernel, sandbox_child

PRELOADED = ("numpy.random", "numpy.linalg", "scipy.spatial.distance", "scipy.optimize", "scipy.stats")
_LARGEST_CALL = 1 << 32
_CHUNK = 1 << 16
_DESCRIPTORS = 256


def main(config: Mapping[str, Any]) -> None:
    """Answer calls until there are no more.

    Args:
        config: `contained`, `home`, `uid` and `nproc` (None: as it is) and the fields of `sandbox.Limits`.
    """
    calls, replies = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # SciPy may be missing
            importlib.import_module(name)
    kernel.hide_memory()
    gc.collect()
    gc.freeze()  # what is loaded stays shared between the processes
    _write(replies, frames.pack({"ready": True}))
    while (call := _read_frame(calls)) is not None:
        supervisor = os.fork()
        if supervisor == 0:
            _as_supervisor(call, replies, config)
        if os.waitpid(supervisor, 0)[1] != 0:
            raise SystemExit("the supervisor of a call failed")  # its reply may be half written: the host starts anew


def _as_supervisor(call: bytes, replies: int, config: Mapping[str, Any]) -> NoReturn:
    status = 1
    try:
        kernel.end_with_parent()
        header, payload = frames.unpack(call, _LARGEST_CALL)
        with _place(config) as folder:
            reply, sent = _supervise(header, payload, folder, config)
        _write(replies, frames.pack({"call": header["call"], **reply}, sent))
        status = 0
    finally:
        os._exit(status)


@contextlib.contextmanager
def _place(config: Mapping[str, Any]) -> Iterator[str]:
    """An empty folder for the call, in namespaces of its own if the sandbox is one."""
    if config["contained"]:
        kernel.new_namespaces()
        kernel.mount_empty(config["home"], config["file_bytes"])
        yield config["home"]
    else:
        kernel.adopt_orphans()
        folder = tempfile.mkdtemp()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _supervise(
    header: Mapping[str, Any], payload: bytes, folder: str, config: Mapping[str, Any]
) -> tuple[dict[str, Any], bytes]:
    """Run the program in a child: what to say of it, and what it printed with its answer behind."""
    pipes = [os.pipe() for _ in range(4)]
    *writers, status_writer = (write for _, write in pipes)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        if config["contained"]:
            _fork_and_count([*writers, status_writer])
        sandbox_child.run_and_exit(header, payload, writers, folder, config)
    for _, write in pipes:
        os.close(write)
    kept, reason = _watch(child, [read for read, _ in pipes], start + config["wall_s"], config)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not config["contained"]:
        _end_descendants()
    setup, printed, answer, told = (_drained(read, start) for (read, _), start in zip(pipes, kept, strict=True))
    status = int(told) if told else status
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    if reason is None and (late or cpu_s > config["cpu_s"]):
        reason = f"used more than {config['cpu_s']:g} s of CPU time"
    if reason is None:
        reason = _too_much(printed, answer, config) or (None if answer else _ending(status))
    said = {"reason": reason, "cpu_s": cpu_s, "wall_s": time.monotonic() - start, "printed": len(printed)}
    if setup != sandbox_child.READY:
        said["failed"] = setup.decode(errors="replace") or f"the child {_ending(status)}"
    return said, bytes(printed) + bytes(b"" if reason else answer)


def _fork_and_count(pipes: list[int]) -> None:
    """Come back as the child; the parent waits for it, then for all that it started, and never comes back.

    What the kernel ends together with a process namespace is counted nowhere.
    """
    program = os.fork()
    if program == 0:
        os.close(pipes[-1])
        return
    try:
        for descriptor in pipes[:-1]:
            os.close(descriptor)
        while True:
            process, status = os.waitpid(-1, 0)
            if process == program:
                break
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all in the namespace but this one, its first process
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        os.write(pipes[-1], str(status).encode())
    finally:
        os._exit(0)


def _watch(
    child: int, sources: list[int], deadline: float, config: Mapping[str, Any]
) -> tuple[list[bytearray], str | None]:
    """Read until the child ends, and why it may not go on if it has to be ended."""
    kept = [bytearray() for _ in sources]
    ended = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (*sources, ended):
        os.set_blocking(descriptor, False)
        poll.register(descriptor, select.POLLIN)
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return kept, f"took longer than {config['wall_s']:g} s by the clock"
        ready = [descriptor for descriptor, _ in poll.poll(remaining * 1000 + 1)]
        for descriptor in ready:
            if descriptor != ended and not _read_some(descriptor, kept[sources.index(descriptor)]):
                poll.unregister(descriptor)
        if reason := _too_much(kept[1], kept[2], config):
            return kept, reason
        if ended in ready:
            return kept, None


def _too_much(printed: bytearray, answer: bytearray, config: Mapping[str, Any]) -> str | None:
    most = config["output_bytes"]
    if len(printed) > most:
        return f"printed more than {most} bytes"
    return f"returned more than {most} bytes" if len(answer) > most + sandbox_child.OVERHEAD else None


def _drained(descriptor: int, kept: bytearray) -> bytearray:
    """What is left in a pipe whose writers are gone; a pipe holds little."""
    with contextlib.suppress(BlockingIOError):
        while _read_some(descriptor, kept):
            pass
    return kept


def _read_some(descriptor: int, into: bytearray) -> bool:
    chunk = os.read(descriptor, _CHUNK)
    into += chunk
    return bool(chunk)


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code} before it answered"
    names = {int(known): known.name for known in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')} before it answered"


def _end_descendants() -> None:
    """Kill what a program left behind, where no process namespace does. They are ours: orphans are adopted."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as listing:
            left = [int(word) for word in listing.read().split()]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _read_frame(source: int) -> bytes | None:
    """The next frame from a pipe; None at its end."""
    prefix = _read_exactly(source, frames.PREFIX.size)
    if prefix is None:
        return None
    body = _read_exactly(source, frames.body_size(prefix, _LARGEST_CALL))
    return None if body is None else prefix + body


def _read_exactly(source: int, size: int) -> bytes | None:
    parts, missing = [], size
    while missing:
        chunk = os.read(source, min(missing, 1 << 20))
        if not chunk:
            return None
        parts.append(chunk)
        missing -= len(chunk)
    return b"".join(parts)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
