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


def four_devices(*arguments):
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    run = subprocess.run([sys.executable, SCRIPT, *arguments], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


def test_same_bits_when_members_or_rows_or_heads_are_spread():
    expected, found = HERE["on_one_device"](), four_devices()
    assert {name: len(digests) for name, digests in found.items()} == {
        "noise small": 1,
        "noise large": 1,
        "base float32": 1,
        "base split": 1,
        "views full": 2,
        "views low_rank": 2,
        "update full": 1,
        "update low_rank": 1,
    }
    for name, digests in found.items():
        assert set(digests) == {expected[name]}, name


@pytest.mark.slow
def test_same_bits_under_every_placement():
    expected, found = HERE["on_one_device"](), four_devices("every")
    assert len(found["views full"]) == 7 and len(found["update low_rank"]) == 3
    for name, digests in found.items():
        assert set(digests) == {expected[name]}, name
