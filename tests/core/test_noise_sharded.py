"""Noise, members and updates on 4 forced devices have the bits of one device."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sharded.py")
HERE = runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def found():
    flags = "--xla_force_host_platform_device_count=4"
    run = subprocess.run([sys.executable, SCRIPT], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def expected():
    return HERE["on_one_device"]()


@pytest.mark.parametrize(
    ("name", "placements"),
    [
        ("noise small", 2),
        ("noise large", 2),
        ("base float32", 6),
        ("base split", 3),
        ("views full", 7),
        ("views low_rank", 4),
        ("update full", 6),
        ("update low_rank", 3),
    ],
)
def test_same_bits(found, expected, name, placements):
    assert found[name] == [expected[name]] * placements
