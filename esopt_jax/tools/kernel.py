"""The few requests to the Linux kernel that the sandbox needs and Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_PDEATHSIG, _DUMPABLE, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 36, 38
_SECCOMP, _SECCOMP_FILTER = 22, 2
_NEWNS, _NEWIPC, _NEWPID = 0x00020000, 0x08000000, 0x20000000
_NOSUID, _NODEV, _REC, _PRIVATE = 2, 4, 0x4000, 0x40000
_CAPABILITIES_VERSION_3 = 0x20080522


def _request(name: str, *args: object) -> None:
    call: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    if call(*args) != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, f"{name}: {os.strerror(fault)}")


def new_namespaces() -> None:
    """Mounts and shared memory of its own for this process; the next process it forks is the first of its kind."""
    _request("unshare", _NEWNS | _NEWIPC | _NEWPID)
    _request("mount", b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None)


def mount_empty(folder: str, size: int) -> None:
    """An empty folder of at most `size` bytes, which goes with the last process that sees it."""
    options = f"size={size},nr_inodes=4096,mode=1777".encode()
    _request("mount", b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(_NOSUID | _NODEV), options)


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process."""
    _prctl(_SUBREAPER, 1)


def end_with_parent() -> None:
    """Kill this process when its parent ends."""
    _prctl(_PDEATHSIG, 9)


def hide_memory() -> None:
    """Processes of the same user may not look into this one or into its descriptors."""
    _prctl(_DUMPABLE, 0)


def drop_capabilities() -> None:
    """Give up every privilege, for good."""
    _prctl(_NO_NEW_PRIVS, 1)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION_3, 0)
    _request("capset", header, (ctypes.c_uint32 * 6)())


def filter_calls(program: bytes) -> None:
    """From here on this process and its children are refused what a seccomp filter refuses."""
    steps = ctypes.create_string_buffer(program, len(program))
    described = _Filter(len(program) // 8, ctypes.addressof(steps))
    _request("prctl", _SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), ctypes.byref(described), *[ctypes.c_ulong(0)] * 2)


class _Filter(ctypes.Structure):
    _fields_ = (("steps", ctypes.c_ushort), ("at", ctypes.c_void_p))


def _prctl(option: int, value: int) -> None:
    _request("prctl", option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)
