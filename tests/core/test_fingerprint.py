import subprocess
import sys

from esopt_jax.core import fingerprint as module
from esopt_jax.core.fingerprint import fingerprint


def test_the_same_in_another_process():
    code = "from esopt_jax.core.fingerprint import fingerprint; print(fingerprint())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == fingerprint()


def test_sees_another_library_and_other_bits(monkeypatch):
    here = fingerprint()
    monkeypatch.setattr(module, "version", lambda name: "0.0.1")
    assert fingerprint() != here
    monkeypatch.undo()
    draw = module.sample_noise
    monkeypatch.setattr(module, "sample_noise", lambda *args: draw(*args) * (1 + 2**-23))
    assert fingerprint() != here
