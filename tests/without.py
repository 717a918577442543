"""What this machine cannot have, as `.ci/run` found and said: names in `ESOPT_WITHOUT`."""

import os

import pytest


def needs(name: str) -> pytest.MarkDecorator:
    """Skip, with that reason, what needs a program that cannot be had here; a missing one otherwise fails."""
    without = os.environ.get("ESOPT_WITHOUT", "").split()
    return pytest.mark.skipif(name in without, reason=f"ESOPT_WITHOUT says that this machine cannot have {name}")
