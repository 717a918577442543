"""The requests to the kernel that a program is refused: it needs none, and each is a way to hide or to attack.

Namespaces already keep a program in. This takes away what would outlive a call in them (keyrings), memory that no
limit counts (`memfd`, System V segments), and the parts of the kernel where most faults have been found. On machines
other than these two nothing is refused.
"""

from __future__ import annotations

import errno
import platform
import struct

REFUSED = {
    "x86_64": {
        "shmget": 29, "semget": 64, "msgget": 68, "ptrace": 101, "personality": 135, "pivot_root": 155, "chroot": 161,
        "mount": 165, "umount2": 166, "mq_open": 240, "add_key": 248, "request_key": 249, "keyctl": 250,
        "unshare": 272, "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319, "bpf": 321, "userfaultfd": 323,
    },
    "aarch64": {
        "shmget": 194, "semget": 190, "msgget": 186, "ptrace": 117, "personality": 92, "pivot_root": 41, "chroot": 51,
        "mount": 40, "umount2": 39, "mq_open": 180, "add_key": 217, "request_key": 218, "keyctl": 219,
        "unshare": 97, "perf_event_open": 241, "fanotify_init": 262, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "memfd_create": 279, "bpf": 280, "userfaultfd": 282,
    },
}  # fmt: skip
EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442,
    "memfd_secret": 447,
}  # fmt: skip
"""Newer ones have one number on all machines."""

_MACHINES = {"x86_64": (0xC000003E, 56), "aarch64": (0xC00000B7, 220)}
"""The kernel's name of a machine, and its number of `clone`."""

_CLONE3 = 435
_NEW_NAMESPACES = 0x7E020000
_OLD_NUMBERS = 0x40000000
"""On x86_64, above these the same requests have second numbers."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def filter_program(machine: str | None = None) -> bytes:
    """The filter in the language of the kernel; empty for a machine that is not known.

    Example:
        >>> len(filter_program("x86_64")) % 8, filter_program("abacus")
        (0, b'')
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        return b""
    name, clone = _MACHINES[machine]
    refuse, allow = _step(_RETURN, _FAIL | errno.EPERM), _step(_RETURN, _ALLOW)
    steps = [_step(_LOAD, _MACHINE), _step(_EQUAL, name, skip_if=1), refuse, _step(_LOAD, _NUMBER)]
    steps += [_step(_AT_LEAST, _OLD_NUMBERS, skip_unless=1), refuse]
    for number in (REFUSED[machine] | EVERYWHERE).values():
        steps += [_step(_EQUAL, number, skip_unless=1), refuse]
    # The arguments of clone3 cannot be seen; without it the C library takes clone.
    steps += [_step(_EQUAL, _CLONE3, skip_unless=1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    steps += [_step(_EQUAL, clone, skip_if=1), allow, _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [_step(_ANY_BIT, _NEW_NAMESPACES, skip_unless=1), refuse, allow]
    return b"".join(steps)


def _step(code: int, value: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_unless, value)
