"""How exactly accelerators compute: `train.matmul_precision` and `train.deterministic`, applied by one call.

Nothing here changes what a CPU computes: it has one precision of float32 products and no kernels that vary.
"""

from __future__ import annotations

import logging
import os

from esopt_jax.config import Config
from esopt_jax.errors import EsoptError

log = logging.getLogger(__name__)

DETERMINISTIC_OPS = "--xla_gpu_deterministic_ops"
"""XLA's flag for GPU kernels, and a choice of kernels, that do not vary from run to run."""

_OFF = ("false", "0", "f", "n", "no")


def use_numerics(config: Config) -> None:
    """Make JAX compute as the config says; call it before anything touches a device.

    `default` leaves the precision that `JAX_DEFAULT_MATMUL_PRECISION` sets, or else JAX's own. XLA reads its flags
    when the first device is touched, so `deterministic` can be had until then only.

    Raises:
        EsoptError: `deterministic` is wanted, and JAX has started on a GPU without it, or `XLA_FLAGS` forbids it.
    """
    import jax

    wanted = config.train.matmul_precision
    precision = os.environ.get("JAX_DEFAULT_MATMUL_PRECISION") if wanted == "default" else wanted
    jax.config.update("jax_default_matmul_precision", precision or None)
    if config.train.deterministic:
        _ask_for_determinism()


def _ask_for_determinism() -> None:
    """Put the flag into `XLA_FLAGS` unless it is there, or no GPU can be used anyway."""
    said = flag_value(os.environ.get("XLA_FLAGS", ""), DETERMINISTIC_OPS)
    if said in _OFF:
        raise EsoptError(
            f"train.deterministic is true, but XLA_FLAGS says {DETERMINISTIC_OPS}={said}; remove it there or set "
            "train.deterministic=false"
        )
    if said is not None or not _gpu_possible():
        return
    if _started():
        raise EsoptError(
            "train.deterministic is true, but JAX has already started on a GPU and reads the flag no more; set "
            f"XLA_FLAGS={DETERMINISTIC_OPS}=true before Python starts"
        )
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DETERMINISTIC_OPS}=true".strip()
    log.debug("XLA_FLAGS: %s", os.environ["XLA_FLAGS"])


def flag_value(flags: str, name: str) -> str | None:
    """The value of flag `name` in the text of `XLA_FLAGS`, of which the last one counts; None if it is not there.

    Example:
        >>> flag_value("--xla_a=1 --xla_b --xla_a=FALSE", "--xla_a")
        'false'
        >>> flag_value("--xla_a=1 --xla_b", "--xla_b")
        'true'
    """
    found = None
    for word in flags.split():
        key, equals, value = word.partition("=")
        if key == name:
            found = value.lower() if equals else "true"
    return found


def _gpu_possible() -> bool:
    """Whether JAX runs on a GPU, or may once it starts."""
    import jax

    if _started():
        return jax.default_backend() == "gpu"
    platforms = jax.config.jax_platforms
    return not platforms or any(name in platforms.split(",") for name in ("gpu", "cuda", "rocm"))


def _started() -> bool:
    """Whether JAX has looked for devices; from then on XLA's flags are fixed."""
    from jax._src import xla_bridge  # no public name tells it without starting JAX

    return xla_bridge.backends_are_initialized()
