"""XLA's compile cache on disk, set by one call and never at import."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """`$ESOPT_CACHE/xla`, else `$XDG_CACHE_HOME/esopt_jax/xla`, else `~/.cache/esopt_jax/xla`."""
    if own := os.environ.get("ESOPT_CACHE"):
        return Path(own).expanduser() / "xla"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "esopt_jax" / "xla"


def use_compile_cache(folder: Path | None = None) -> Path | None:
    """Keep compiled programs in `folder`, so that a second run starts in seconds.

    A folder set by `JAX_COMPILATION_CACHE_DIR` is respected. One that cannot be written is a warning, not an error.

    Returns:
        The folder in use, or None.
    """
    import jax

    if jax.config.jax_compilation_cache_dir:
        return Path(jax.config.jax_compilation_cache_dir)
    try:
        folder = cache_folder() if folder is None else folder
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as fault:  # RuntimeError: no home directory
        log.warning("no compile cache: %s (set ESOPT_CACHE to a folder that can be written)", fault)
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    return folder
