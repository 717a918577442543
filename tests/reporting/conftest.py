"""A browser for the tests of pages."""

from __future__ import annotations

import os
from collections.abc import Iterator

import chromium
import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Page]:
    """One tab for all tests."""
    if "chromium" in os.environ.get("ESOPT_WITHOUT", "").split():
        pytest.skip("ESOPT_WITHOUT says that this machine cannot have chromium")
    if chromium.find_chromium() is None:
        (pytest.fail if os.environ.get("ESOPT_REQUIRE_PARITY") else pytest.skip)(chromium.HINT)
    with chromium.opened_chromium() as page:
        yield page
