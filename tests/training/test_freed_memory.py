"""What is freed goes back to the system."""

import subprocess
import sys

import pytest

from esopt_jax.training.freed_memory import give_back

PROGRAM = """
import sys
import numpy as np
from esopt_jax.training.freed_memory import give_back, share_one_heap

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

share_one_heap()
large = np.ones(2_000_000)
del large  # which teaches glibc to keep what is smaller
arrays = [np.ones(120_000) for _ in range(200)]
last = arrays[-1]  # lies above the others, which are not given back as long as it is there
del arrays
held = resident()
if sys.argv[1] == "give back":
    give_back()
print(held - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and other C libraries decide themselves")
def test_memory_that_arrays_have_left_is_returned_and_not_without_asking():
    returned = {
        what: int(subprocess.run([sys.executable, "-c", PROGRAM, what], check=True, capture_output=True).stdout)
        for what in ("give back", "keep")
    }
    assert returned["give back"] > 100e6 and abs(returned["keep"]) < 10e6


def test_it_may_be_asked_anywhere():
    give_back()
