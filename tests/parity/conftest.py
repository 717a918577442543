"""Parity tests compare with transformers' torch models: skipped without torch, unless they are required.

Each module here starts with `torch = pytest.importorskip("torch", reason=...)`.
"""

import importlib.util
import os

if importlib.util.find_spec("torch") is None and os.environ.get("ESOPT_REQUIRE_PARITY"):
    raise RuntimeError("ESOPT_REQUIRE_PARITY is set but torch is not installed: pip install -e '.[parity]'")
