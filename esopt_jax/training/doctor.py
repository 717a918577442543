"""What a run would find on this machine, and what stands in its way. Names no host and no user."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from esopt_jax import __version__
from esopt_jax.errors import EsoptError
from esopt_jax.training.compile_cache import cache_folder
from esopt_jax.training.device_probe import probe_devices
from esopt_jax.training.packages import Requirement, requirements
from esopt_jax.training.platform_record import without_home

GPU_INSTALL = 'pip install -U "jax[cuda13]"'

_FEW_BYTES, _TOO_FEW_BYTES = 2**30, 2**26


@dataclass(frozen=True)
class Problem:
    """Something wrong, and what to do about it. `fatal`: no run is possible."""

    what: str
    fix: str
    fatal: bool


Report = Callable[[Problem], None]
"""Takes a problem."""


def examine() -> dict[str, Any]:
    """The whole report, ready for JSON; `problems` holds a `Problem` as a mapping each."""
    problems: list[Problem] = []
    report = {
        "esopt_jax": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **_packages(problems.append),
        "jax": _devices(problems.append),
        "host_memory_bytes": _memory_bytes(),
        "folders": _folders(problems.append),
        "bubblewrap": shutil.which("bwrap") is not None,
    }
    return {**report, "problems": [asdict(problem) for problem in problems]}


def _packages(report: Report) -> dict[str, Any]:
    """Versions of what is required, and by extra of what is optional; None where missing."""
    required: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    found = requirements()
    for need in found:
        (required if need.extra is None else extras.setdefault(need.extra, {}))[need.name] = need.installed
        if not need.met and need.extra is None:
            state = "is missing" if need.installed is None else f"is {need.installed}"
            report(Problem(f"{need.name} {state}; {need.name}{need.bound} is needed", _install(need), fatal=True))
        elif need.installed is not None and not need.met:
            what = f"{need.name} is {need.installed}; the extra {need.extra} needs {need.name}{need.bound}"
            report(Problem(what, _install(need), fatal=False))
    if not found:
        what = "esopt_jax is on the path, but not installed: its packages cannot be checked"
        report(Problem(what, "pip install -e . in its checkout", fatal=False))
    return {"packages": required, "extras": extras}


def _install(need: Requirement) -> str:
    return f"pip install -U '{need.name}{need.bound}'"


def _devices(report: Report) -> dict[str, Any] | None:
    """What JAX starts on, or None when it does not start."""
    try:
        found = probe_devices()
    except EsoptError as fault:
        platforms = os.environ.get("JAX_PLATFORMS")
        where = f" with JAX_PLATFORMS={platforms}" if platforms else ""
        report(Problem(f"JAX does not start{where}: {without_home(str(fault))}", _fix_of_jax(str(fault)), fatal=True))
        return None
    if found["backend"] == "cpu" and _has_nvidia() and "JAX_PLATFORMS" not in found["flags"]:
        report(Problem("there is an NVIDIA GPU, but JAX runs on the CPU", GPU_INSTALL, fatal=False))
    memory = found.pop("memory")
    devices = [{"kind": kind, "memory_bytes": size} for kind, size in zip(found["devices"], memory, strict=True)]
    kept = ("cpus", "backend", "flags", "git_commit")
    return {**{name: found[name] for name in kept}, "devices": devices}


def _fix_of_jax(reason: str) -> str:
    if "XLA_FLAGS" in reason:
        return "remove that flag from the variable XLA_FLAGS"
    if os.environ.get("JAX_PLATFORMS"):
        return f"unset JAX_PLATFORMS, or install what it names; for an NVIDIA GPU: {GPU_INSTALL}"
    return f"pip install -U jax; for an NVIDIA GPU: {GPU_INSTALL}"


def _has_nvidia() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def _memory_bytes() -> dict[str, int | None]:
    """`total` and `available` memory of the host; None where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return {"total": None, "available": None}
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE))
    sizes = {name: found.get(key) for name, key in (("total", "MemTotal"), ("available", "MemAvailable"))}
    return {name: None if size is None else int(size) * 1024 for name, size in sizes.items()}


def _folders(report: Report) -> dict[str, Any]:
    """Where a run writes, whether it can, and how much room there is."""
    runs = _folder(Path("runs"))
    if not runs["writable"]:
        what = "runs/ cannot be written in this folder"
        report(Problem(what, "change to a folder of your own, or pass --run-dir DIR", fatal=True))
    try:
        temporary = _folder(Path(tempfile.gettempdir()))
    except OSError:
        temporary = {"path": None, "writable": False, "free_bytes": None}
        report(Problem("there is no folder for temporary files", "set TMPDIR to one that can be written", fatal=True))
    for name, folder in (("runs/", runs), ("the folder for temporary files", temporary)):
        if (free := folder["free_bytes"]) is not None and free < _FEW_BYTES:
            what = f"the disk of {name} has {free / 2**20:.0f} MiB left"
            report(Problem(what, "make room, or use another disk", fatal=free < _TOO_FEW_BYTES))
    return {"runs": runs, "temporary": temporary, "compile_cache": _compile_cache(report)}


def _compile_cache(report: Report) -> dict[str, Any] | None:
    try:
        path = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder())
    except RuntimeError:  # no home folder
        path = None
    found = None if path is None else _folder(path)
    if path is None or found is None or not found["writable"]:
        what = "the compile cache cannot be written: each run will compile anew"
        report(Problem(what, "set ESOPT_CACHE to a folder that can be written", fatal=False))
        return found
    return {**found, "bytes": _bytes_in(path)}


def _bytes_in(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        with contextlib.suppress(OSError):  # another process may tidy up meanwhile
            total += file.lstat().st_size
    return total


def _folder(path: Path) -> dict[str, Any]:
    """`path`, whether files can be made there, and the free bytes of its disk; makes no folder."""
    nearest = path.absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
        writable = True
    except OSError:
        writable = False
    free = shutil.disk_usage(nearest).free if nearest.exists() else None
    return {"path": without_home(path), "writable": writable, "free_bytes": free}
