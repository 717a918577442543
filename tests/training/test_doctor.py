"""Each thing that may be wrong with a machine is said, with a fix, and weighed."""

import subprocess
import sys
from collections import namedtuple

import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.training import doctor, packages
from esopt_jax.training.device_probe import probe_devices

_JAX = {"cpus": 2, "backend": "cpu", "devices": ["cpu"], "memory": [None], "flags": {}, "git_commit": None}


@pytest.fixture
def examine(tmp_path, monkeypatch):
    """The problems of a good machine, once a test has broken something: (what, fix, fatal)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ESOPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(doctor, "probe_devices", lambda: dict(_JAX))
    monkeypatch.setattr(doctor, "_has_nvidia", lambda: False)
    monkeypatch.setattr(packages.metadata, "requires", lambda name: ["numpy>=2.0"])
    return lambda: [tuple(problem.values()) for problem in doctor.examine()["problems"]]


def test_a_good_machine_has_no_problems_and_nothing_is_left_behind(examine, tmp_path):
    assert examine() == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "what", "fatal"),
    [
        ("no-such>=1.0", "no-such is missing; no-such>=1.0 is needed", True),
        ("numpy>=99", "; numpy>=99 is needed", True),
        ('numpy>=99; extra == "gpu"', "; the extra gpu needs numpy>=99", False),
    ],
)
def test_packages(examine, monkeypatch, asked, what, fatal):
    monkeypatch.setattr(packages.metadata, "requires", lambda name: [asked])
    ((said, fix, weight),) = examine()
    assert what in said and fix == f"pip install -U '{asked.partition(';')[0]}'" and weight is fatal


def test_an_extra_that_is_not_installed_is_no_problem(examine, monkeypatch):
    monkeypatch.setattr(packages.metadata, "requires", lambda name: ['no-such>=1; extra == "gpu"'])
    assert examine() == [] and doctor.examine()["extras"] == {"gpu": {"no-such": None}}


def test_a_checkout_that_is_not_installed(examine, monkeypatch):
    def absent(name):
        raise packages.metadata.PackageNotFoundError

    monkeypatch.setattr(packages.metadata, "requires", absent)
    ((said, fix, fatal),) = examine()
    assert "cannot be checked" in said and "pip install -e ." in fix and not fatal


@pytest.mark.parametrize(
    ("installed", "bound", "met"),
    [("2.0", ">=2.0.0", True), ("2.0.0rc1", ">=2", True), ("10.0", ">=9.1", True), ("1.9", ">=2", False)],
)
def test_versions_are_compared_as_numbers(installed, bound, met):
    assert packages.Requirement("x", bound, None, installed).met is met


def test_jax_that_does_not_start(examine, monkeypatch):
    def broken():
        raise EsoptError("no device")

    monkeypatch.setattr(doctor, "probe_devices", broken)
    ((said, fix, fatal),) = examine()
    assert (said, fatal) == ("JAX does not start: no device", True) and doctor.GPU_INSTALL in fix
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    ((said, fix, _),) = examine()
    assert "with JAX_PLATFORMS=cuda" in said and fix.startswith("unset JAX_PLATFORMS")


def test_a_gpu_that_jax_does_not_see(examine, monkeypatch):
    monkeypatch.setattr(doctor, "_has_nvidia", lambda: True)
    assert examine() == [("there is an NVIDIA GPU, but JAX runs on the CPU", 'pip install -U "jax[cuda13]"', False)]
    monkeypatch.setattr(doctor, "probe_devices", lambda: {**_JAX, "flags": {"JAX_PLATFORMS": "cpu"}})
    assert examine() == []  # it was asked to


def test_a_folder_where_no_run_can_be_written(examine, tmp_path):
    (tmp_path / "runs").touch()
    ((said, fix, fatal),) = examine()
    assert "runs/ cannot be written" in said and "--run-dir" in fix and fatal


def test_a_cache_that_cannot_be_written_is_no_obstacle(examine, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ESOPT_CACHE", str(tmp_path / "file"))
    ((said, fix, fatal),) = examine()
    assert "compile cache cannot be written" in said and "ESOPT_CACHE" in fix and not fatal


def test_the_cache_is_measured(examine, tmp_path):
    (tmp_path / "cache" / "xla").mkdir(parents=True)
    (tmp_path / "cache" / "xla" / "program").write_bytes(b"x" * 5000)
    cache = doctor.examine()["folders"]["compile_cache"]
    assert cache["bytes"] == 5000 and cache["writable"]


def test_no_folder_for_temporary_files(examine, monkeypatch):
    def absent():
        raise FileNotFoundError

    monkeypatch.setattr(doctor.tempfile, "gettempdir", absent)
    ((said, fix, fatal),) = examine()
    assert "temporary files" in said and "TMPDIR" in fix and fatal


@pytest.mark.parametrize(("free", "weights"), [(2**31, []), (2**29, [False] * 2), (2**20, [True] * 2)])
def test_a_disk_that_is_nearly_full(examine, monkeypatch, free, weights):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(free))
    assert [fatal for _, _, fatal in examine()] == weights


def test_the_probe_runs_in_a_process_of_its_own_and_keeps_no_flag(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".5")
    found = probe_devices()
    assert found["backend"] == "cpu" and found["memory"] == [None] * len(found["devices"])
    assert found["flags"]["XLA_PYTHON_CLIENT_MEM_FRACTION"] == ".5"
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in found["flags"]


def test_what_ends_the_probe_is_told(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    with pytest.raises(EsoptError, match=r"^Unknown flag in XLA_FLAGS: --xla_no_such_flag=1$"):
        probe_devices()
    with pytest.raises(EsoptError, match=r"no answer within 0\.01 s"):
        probe_devices(timeout_s=0.01)


def test_the_doctor_itself_needs_no_jax():
    code = "import esopt_jax.training.doctor, sys; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
