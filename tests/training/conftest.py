"""A tiny agent and environments, made once a session."""

from pathlib import Path

import pytest
import tiny_agent

from esopt_jax.config import Config
from esopt_jax.config_reader import from_dict


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_agent.write_model(tmp_path_factory.mktemp("agent") / "model")


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the factories `Even` and `Broken`."""
    path = tmp_path_factory.mktemp("environments") / "toys.py"
    path.write_text(tiny_agent.BROKEN)
    return path


@pytest.fixture(scope="session")
def make_config(tiny_model: Path, environments: Path):
    def make(factory: str = "Even", **overrides: object) -> Config:
        tree: dict = {}
        for key, value in tiny_agent.settings(tiny_model, f"{environments}:{factory}", **overrides).items():
            section, _, name = key.rpartition(".")
            (tree.setdefault(section, {}) if section else tree)[name] = value
        return from_dict(tree)

    return make
