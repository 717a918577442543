"""How the worker of a sandbox is started: the command line of bubblewrap, and who the programs run as."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError

HERE = Path(__file__).parent
FILES = ("frames.py", "kernel.py", "sandbox_child.py", "sandbox_worker.py", "syscalls.py")
"""What is readable inside of this package. Never the whole of it, and never on the path."""

BOOT = (
    "import json, sys, types; package = types.ModuleType('sandboxed'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['sandboxed'] = package; from sandboxed import sandbox_worker; "
    "sandbox_worker.main(json.loads(sys.argv[2]))"
)
INSTALL = "`apt install bubblewrap`, or unsafe=True to run programs without protection"
_INSIDE = "/sandboxed"
_OWN_PROCESSES = 4
"""Those of the sandbox in its user namespace, which count against the limit: bubblewrap and three more."""

_PACKAGES = ("site-packages", "dist-packages")
_UIDS = (1_000_000_000, 2_000_000_000)
_slots = itertools.count()

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # sets have one order
    "PYTHONDONTWRITEBYTECODE": "1",
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")},
}
"""All that a program can read of an environment."""


def start_command(limits: Mapping[str, Any], *, unsafe: bool) -> list[str]:
    """The command that starts a worker.

    Args:
        limits: the fields of `sandbox.Limits`.
        unsafe: without bubblewrap.

    Raises:
        EsoptError: bubblewrap is missing.
    """
    if unsafe:
        config = {**limits, "contained": False, "uid": None, "nproc": None}
        return [sys.executable, "-c", BOOT, str(HERE), json.dumps(config)]
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise EsoptError(f"programs run in bubblewrap, and there is no `bwrap` on PATH: {INSTALL}")
    uid = _slot_uid(next(_slots)) if os.geteuid() == 0 else None
    nproc = limits["processes"] + (0 if uid is not None else _OWN_PROCESSES)
    home = _home(python_folders())
    config = {**limits, "contained": True, "uid": uid, "nproc": nproc, "home": home}
    inside = [sys.executable, "-c", BOOT, _INSIDE, json.dumps(config)]
    own = ["--setenv", "HOME", home, "--setenv", "TMPDIR", home, "--perms", "0755", "--dir", home, "--chdir", home]
    return [bwrap, *_isolation(as_root=uid is not None), *_files(), *own, "--remount-ro", "/", "--", *inside]


def _isolation(*, as_root: bool) -> list[str]:
    """Namespaces and privileges; the worker keeps what it needs to confine its children, and they drop it.

    Root uses no user namespace: the kernel does not count the processes of a user that stands for root. A number of
    its own per sandbox takes the place.
    """
    common = ["--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for name, value in ENVIRONMENT.items():
        common += ["--setenv", name, value]
    if not as_root:
        return ["--unshare-all", "--unshare-user", "--disable-userns", *common]
    spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    return [*spaces, *common, *(word for name in ("SETUID", "SETGID", "KILL") for word in ("--cap-add", f"CAP_{name}"))]


def _files() -> list[str]:
    """What can be seen, all of it read-only: the system, Python with its packages, a few files from here."""
    words = ["--ro-bind", "/usr", "/usr"]
    for folder in ("/bin", "/lib", "/lib64"):
        if os.path.islink(folder):
            words += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            words += ["--ro-bind", folder, folder]
    package = HERE.parent
    shown = python_folders()
    for way in (*map(str, _parents(shown)), "/etc", "/dev", _INSIDE):  # bubblewrap makes them for root alone
        words += ["--perms", "0755", "--dir", way]
    words += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    hidden = [place for place in (package.parent, package) if place.name not in _PACKAGES]
    # Outer folders come first: what is mounted later lies on top, so a virtual environment inside a checkout is seen.
    for place in sorted([*shown, *hidden], key=lambda place: len(place.parts)):
        if place in shown:
            words += ["--ro-bind", str(place), str(place)]
        elif any(place.is_relative_to(outer) for outer in (Path("/usr"), *shown)):
            words += ["--tmpfs", str(place), "--remount-ro", str(place)]
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        words += ["--dev-bind", device, device]
    for name in FILES:
        words += ["--ro-bind", str(HERE / name), f"{_INSIDE}/{name}"]
    return words


def python_folders() -> list[Path]:
    """The folders that Python and its packages lie in, outside /usr."""
    packages = (path for path in sys.path if Path(path).name in _PACKAGES and os.path.isdir(path))
    return _outermost(Path(path) for path in (sys.base_prefix, sys.prefix, *packages))


def _home(shown: Iterable[Path]) -> str:
    """Where the empty folder of a call is: it must not hide Python, which may lie in /tmp itself."""
    return "/home/sandbox" if any(place.is_relative_to("/tmp") for place in shown) else "/tmp"


def _outermost(places: Iterable[Path]) -> list[Path]:
    kept: list[Path] = [Path("/usr")]
    for place in sorted(places, key=lambda place: len(place.parts)):
        if not any(place.is_relative_to(outer) for outer in kept):
            kept.append(place)
    return kept[1:]


def _parents(places: Iterable[Path]) -> list[Path]:
    """Every folder on the way to these, outer ones first."""
    found = {parent for place in places for parent in place.parents if parent.parts[1:]}
    return sorted(found, key=lambda place: len(place.parts))


def _slot_uid(slot: int) -> int:
    """A user that nobody is, in this or any other process; limits on processes count per user.

    Raises:
        EsoptError: this process is root of a namespace with too few users.
    """
    wanted = _UIDS
    if not _has_users(*wanted):
        wanted = (20_000, 60_000)
        if not _has_users(*wanted):
            raise EsoptError(
                f"root in a namespace with too few users (/proc/self/uid_map): run as another user, {INSTALL}"
            )
    return wanted[0] + (os.getpid() * 256 + slot % 256) % (wanted[1] - wanted[0])


def _has_users(first: int, end: int) -> bool:
    rows = [[int(word) for word in line.split()] for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(start <= first and end <= start + size for start, _, size in rows)
