import os
import subprocess
import sys

import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.training.lock import is_locked, run_lock

HOLD = """
import sys, time
from pathlib import Path
from esopt_jax.training.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_dies(tmp_path):
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        assert is_locked(path)
        with pytest.raises(EsoptError, match=f"is in use by process {holder.pid}; wait for it"), run_lock(path):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert not is_locked(path)
    with run_lock(path):
        assert path.read_text() == f"{os.getpid()}\n" and is_locked(path)
    assert not is_locked(path)


def test_a_folder_that_vanished_is_one_line(tmp_path):
    with pytest.raises(EsoptError, match="cannot be locked: No such file"), run_lock(tmp_path / "gone" / "lock"):
        pass
