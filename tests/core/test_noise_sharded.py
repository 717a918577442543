"""Noise, members and updates on 4 forced devices have the bits of one device."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sharded.py")
OFF = "low-rank update, off by"
HERE = runpy.run_path(str(SCRIPT))


def four_devices(*arguments):
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    run = subprocess.run([sys.executable, SCRIPT, *arguments], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


def test_same_bits_when_members_rows_or_heads_are_spread():
    found = four_devices()
    found.pop(OFF)
    results = ["base float32", "noise large", "noise small", "update full", "update scoped"]
    assert sorted(found) == [*results, "views full", "views low_rank", "views scoped"]
    for result, digests in found.items():
        assert set(digests) == {HERE["on_one_device"](result)}, result


@pytest.mark.slow
def test_same_bits_under_every_placement():
    found = four_devices("every")
    assert 0 < found.pop(OFF) < 1e-6  # the last bits of a matrix product depend on its shape
    assert len(found["views full"]) == 7 and len(found["update full"]) == 6 and len(found["update low_rank"]) == 1
    for result, digests in found.items():
        assert set(digests) == {HERE["on_one_device"](result)}, result
