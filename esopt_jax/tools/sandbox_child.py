"""The process that runs a stranger's program: it gives up what it could do harm with, then executes, once."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import random
import resource
import sys
import traceback
import types
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from . import frames, kernel, syscalls

READY = b"ready"
OVERHEAD = 1 << 16
"""Bytes of an answer beside the arrays, at most."""

_ANSWER, _SETUP, _PARKED, _DESCRIPTORS = 3, 4, 100, 64
_LONGEST_REASON = 400


def run_and_exit(
    header: Mapping[str, Any], payload: bytes, pipes: list[int], folder: str, config: Mapping[str, Any]
) -> NoReturn:
    """Confine this process, run the program, write the answer, end.

    Args:
        header: `code`, `runner` and the `arrays` of a call.
        payload: the bytes of those.
        pipes: descriptors to write to: how the set-up went, what is printed, the answer.
        folder: the working directory, empty.
        config: see `sandbox_worker.main`.
    """
    try:
        _arrange_descriptors(*pipes)
        try:
            _confine(folder, config)
        except (OSError, ValueError) as fault:
            os.write(_SETUP, f"{type(fault).__name__}: {fault}".encode())
            os._exit(0)
        os.write(_SETUP, READY)
        os.close(_SETUP)
        answer = _answer(header, payload, config)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        view = memoryview(answer)
        while view:
            view = view[os.write(_ANSWER, view) :]
        os._exit(0)
    finally:
        os._exit(70)


def _arrange_descriptors(setup: int, printed: int, answer: int) -> None:
    """Nothing is open but /dev/null, what is printed, the answer and, until the program starts, the set-up."""
    setup, printed, answer = (fcntl.fcntl(pipe, fcntl.F_DUPFD, _PARKED) for pipe in (setup, printed, answer))
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.dup2(answer, _ANSWER, inheritable=False)
    os.dup2(setup, _SETUP, inheritable=False)
    os.closerange(_SETUP + 1, 4 * _DESCRIPTORS)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _confine(folder: str, config: Mapping[str, Any]) -> None:
    os.setsid()
    os.umask(0o022)
    os.chdir(folder)
    if not config["contained"]:
        kernel.end_with_parent()
    # The kernel counts ticks here, in whole seconds: a rough end. The supervisor compares what was used exactly.
    cpu_s = math.floor(1.1 * config["cpu_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    for limit, value in {
        resource.RLIMIT_AS: config["memory_bytes"],
        resource.RLIMIT_FSIZE: config["file_bytes"],
        resource.RLIMIT_NOFILE: _DESCRIPTORS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }.items():
        resource.setrlimit(limit, (value, value))
    if config["nproc"] is not None:
        resource.setrlimit(resource.RLIMIT_NPROC, (config["nproc"], config["nproc"]))
    if config["uid"] is not None:
        os.setgroups([])
        os.setresgid(*[config["uid"]] * 3)
        os.setresuid(*[config["uid"]] * 3)
    if config["contained"]:
        kernel.drop_capabilities()
        if refusing := syscalls.filter_program():
            kernel.filter_calls(refusing)


def _answer(header: Mapping[str, Any], payload: bytes, config: Mapping[str, Any]) -> bytes:
    """The frame to send: arrays, or why there are none."""
    random.seed(0)  # the same in every worker, for a program that takes what it finds
    np.random.seed(0)  # noqa: NPY002
    try:
        inputs = frames.unpack_arrays(header["arrays"], payload)
        program, runner = types.ModuleType("program"), types.ModuleType("runner")
        sys.modules["program"] = program  # dataclasses look their module up
        exec(compile(header["runner"], "<runner>", "exec"), runner.__dict__)
        exec(compile(header["code"], "<program>", "exec"), program.__dict__)
        specs, sent = frames.pack_arrays(runner.run(program, inputs))
        if len(sent) > config["output_bytes"]:
            raise frames.FrameError(f"returned more than {config['output_bytes']} bytes")
        return frames.pack({"arrays": specs}, sent)
    except BaseException as fault:  # SystemExit too: it ends the program, not the call
        return frames.pack({"error": _described(fault)})


def _described(fault: BaseException) -> str:
    """One line: what was raised, why, and on which line of the program."""
    lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == "<program>"]
    if isinstance(fault, SyntaxError) and fault.filename == "<program>":
        lines = [fault.lineno]
    where = f" (line {lines[-1]} of the program)" if lines else ""
    if isinstance(fault, frames.FrameError):
        return f"{fault}"[:_LONGEST_REASON]
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text}"[:_LONGEST_REASON].rstrip(": ") + where
