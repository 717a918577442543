"""Both sides of a comparison, each in a process of its own, in turn; on a CPU each with one thread on one core.

A benchmark runs itself again as each side. A side warms up, says what it found then, and answers the name of a
job with what it took: `wall` and `cpu` seconds, and in `extra` the peak memory beyond what was held before, in bytes.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
ON_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

Jobs = Mapping[str, Callable[[], None]]
Took = dict[str, Any]


def pin_to_core() -> None:
    """Keep this process, and those that it starts, on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Side:
    """A process that does jobs when it is told to."""

    def __init__(self, script: str, arguments: Sequence[str], *, device: str):
        """Start `script arguments` and wait until it is warm; `found` is what it said then."""
        environment = os.environ | (ON_GPU if device == "gpu" else ONE_THREAD)
        command = [sys.executable, script, *arguments]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=environment, **pipes)
        self.found = self._answer()

    def do(self, job: str) -> Took:
        """Do a job once."""
        self._process.stdin.write(f"{job}\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Let the process end."""
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Took:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a side has ended; its message is above")
        return json.loads(line)


def serve(jobs: Jobs, found: Mapping[str, Any], peak: "Peak", *, warm: Sequence[str]) -> None:
    """Be a side: `found`, with the seconds of the first time of the jobs in `warm`, then an answer a line of stdin."""
    first = {name: round(_timed(jobs[name])["wall"], 2) for name in warm}
    print(json.dumps({**found, "first_s": first}), flush=True)
    for line in sys.stdin:
        peak.begin()
        print(json.dumps({**_timed(jobs[line.strip()]), "extra": peak.end()}), flush=True)


def _timed(job: Callable[[], None]) -> Took:
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


class Peak:
    """Peak memory between two moments; None where the system does not say."""

    def begin(self) -> None:
        """From here on."""

    def end(self) -> int | None:
        """Bytes beyond those held at `begin`."""
        return None


class ResidentPeak(Peak):
    """Of this process, on Linux. What was freed is given back first, so that it is not used again uncounted."""

    def begin(self) -> None:
        """From here on."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
        self._held = _status("VmRSS")

    def end(self) -> int:
        """Bytes beyond those held at `begin`."""
        return _status("VmHWM") - self._held


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) * 1024


class JaxPeak(Peak):
    """Of JAX's device; an upper bound, since its peak is that since the start of the process."""

    def begin(self) -> None:
        """From here on."""
        import jax

        gc.collect()
        self._device = jax.devices()[0]
        self._held = self._device.memory_stats()["bytes_in_use"]

    def end(self) -> int:
        """Bytes beyond those held at `begin`."""
        return self._device.memory_stats()["peak_bytes_in_use"] - self._held


class TorchPeak(Peak):
    """Of PyTorch's device."""

    def begin(self) -> None:
        """From here on."""
        import torch

        torch.cuda.reset_peak_memory_stats()
        self._held = torch.cuda.memory_allocated()

    def end(self) -> int:
        """Bytes beyond those held at `begin`."""
        import torch

        return torch.cuda.max_memory_allocated() - self._held
