"""A tiny agent, its environments as files, and a config that names them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_agent


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model/` and `toys.py`."""
    folder = tmp_path_factory.mktemp("workplace")
    tiny_agent.write_model(folder / "model")
    (folder / "toys.py").write_text(tiny_agent.BROKEN)
    return folder


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """The command line configures the package's logger; give it back."""
    log = logging.getLogger("esopt_jax")
    handlers, level = log.handlers[:], log.level
    yield
    log.handlers[:] = handlers
    log.setLevel(level)
    log.propagate = True
