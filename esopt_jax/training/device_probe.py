"""Starts JAX in a process of its own and says what it found: a broken driver aborts or hangs that process, not ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

from esopt_jax.errors import EsoptError

TIMEOUT_S = 120
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def probe_devices(timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """`platform_record` of the default config, with `memory`: bytes of each device that JAX may use, None if untold.

    Raises:
        EsoptError: JAX does not start, in its own words.
    """
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False)
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return found
    except subprocess.TimeoutExpired:
        raise EsoptError(f"no answer within {timeout_s:g} s") from None
    except (OSError, ValueError, IndexError) as fault:
        raise EsoptError(" ".join(str(fault).split())) from None
    raise EsoptError(_last_words(done.stderr) or f"it ended with exit code {done.returncode}")


def _last_words(errors: str) -> str:
    """The line that says why: of an abort the one that is marked as fatal, else the last one."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    fatal = [match[1] for line in lines if (match := re.match(r"F\d{4} [^]]*\] (.+)", line))]
    return (fatal or lines or [""])[-1]


def _main() -> None:
    own = os.environ.get(_PREALLOCATE)
    os.environ[_PREALLOCATE] = "false"  # a look must not take the memory of a GPU that others use
    import jax
    import jax.numpy as jnp

    from esopt_jax.config import Config
    from esopt_jax.training.platform_record import platform_record

    memory = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.local_devices()]
    jax.block_until_ready(jax.jit(lambda x: x @ x)(jnp.ones((8, 8))))  # a driver may be found and not work
    del os.environ[_PREALLOCATE]
    if own is not None:
        os.environ[_PREALLOCATE] = own
    sys.stdout.write(json.dumps({**platform_record(Config()), "memory": memory}) + "\n")


if __name__ == "__main__":
    _main()
