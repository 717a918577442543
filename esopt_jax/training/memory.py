"""Memory of this process."""

from __future__ import annotations

import resource
import sys


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
