"""Hold no more of a computer's memory than the work at hand needs, which counts where JAX computes on its CPU.

glibc keeps freed arrays below 32 MB for later, also where what comes next is of another size, and a heap for each of
several threads, XLA's compiling ones among them. So a run would hold its caches and its scratch twice: for SmolLM2-135M
2.5 GB where 1.9 GB do. (To give back every array at once, by a low threshold of `mmap`, costs half as much time again.)
"""

from __future__ import annotations

import ctypes
from functools import cache

_M_ARENA_MAX = -8  # malloc.h


def share_one_heap() -> None:
    """Let threads allocate where the first one does; for those that begin later, so call it before JAX starts."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return what is free to the system; milliseconds, to be paid between two kinds of work."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is that one."""
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # no such handle on Windows
        return None
    return libc if all(hasattr(libc, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")) else None
