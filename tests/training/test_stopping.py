"""Signals, full disks and vanished folders: one line, and the run goes on later to the same result."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from same_run import check_same

from esopt_jax.errors import EsoptError, InterruptedRunError, StoppedError
from esopt_jax.models.save import save_params
from esopt_jax.training.loop import train
from esopt_jax.training.moments import Moment
from esopt_jax.training.resume import resume
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.signals import StopSignal
from esopt_jax.training.stopping import as_stop, stops


@pytest.fixture(scope="module")
def config(make_config):
    return make_config(es__generations=3, train__checkpoint_every=2)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(config, folder)
    return folder


def send_at(number, moment, nth=1):
    """Send this process a signal when the run gets there."""
    left = nth

    def at(now):
        nonlocal left
        left -= now == moment
        if left == 0 and now == moment:
            os.kill(os.getpid(), number)

    return at


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_stop_a_run_which_then_goes_on(config, whole, tmp_path, number):
    before = signal.getsignal(number)
    with pytest.raises(StoppedError, match=rf"stopped by {number.name} .*--resume goes on") as stop:
        train(config, tmp_path / "run", at=send_at(number, Moment.UPDATE, 2))
    assert stop.value.exit_code == 3 and signal.getsignal(number) == before
    summary = Run.load(tmp_path / "run").summary
    assert (summary["status"], summary["stopped_because"]) == ("stopped", f"stopped by {number.name}")
    resume(tmp_path / "run")
    check_same(tmp_path / "run", whole)


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal; a job in the background is started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_a_run_which_then_goes_on(config, whole, tmp_path, interruptible):
    with pytest.raises(InterruptedRunError, match=r"interrupted .*--resume") as stop:
        train(config, tmp_path / "run", at=send_at(signal.SIGINT, Moment.EVALUATION))
    assert stop.value.exit_code == 130
    resume(tmp_path / "run")
    check_same(tmp_path / "run", whole)


def test_a_signal_that_was_swallowed_stops_the_run_at_its_next_moment():
    passed = []
    with pytest.raises(StoppedError, match="stopped by SIGTERM"), stops() as request:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
            passed.append("the signal")
        except StopSignal:
            pass
        request.check()
        passed.append("the next moment")
    assert not passed  # asked outside: within, a failed assertion would be taken for the stop


class Swallows:
    """Is destroyed while a signal comes, and Python lets no exception out of that."""

    def __init__(self, fault=None):
        self.fault = fault

    def __del__(self):
        if self.fault is not None:
            raise self.fault
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)


def test_a_signal_that_a_destructor_swallowed_prints_nothing_and_other_faults_are_still_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda swallowed: reported.append(swallowed.exc_value))
    hook = sys.unraisablehook
    with pytest.raises(StoppedError, match="stopped by SIGTERM"), stops() as request:
        Swallows(fault := ValueError("not of a signal"))
        Swallows()
        request.check()
    assert reported == [fault] and sys.unraisablehook is hook


@pytest.mark.parametrize("fault", [ImportError("initialization failed"), EsoptError("no such model"), OSError("cut")])
def test_a_signal_whose_exception_came_out_as_another_is_the_reason_of_the_stop(fault):
    with pytest.raises(StoppedError, match=r"^stopped by SIGTERM$"), stops():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except StopSignal:
            raise fault from None


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGTERM, "stopped by SIGTERM"), (signal.SIGINT, "interrupted")])
def test_a_signal_in_the_middle_of_a_checkpoint_is_what_the_run_says(
    config, whole, tmp_path, interruptible, number, reason, monkeypatch
):
    def spoilt(*_):
        try:
            os.kill(os.getpid(), number)
            time.sleep(1)
        except (StopSignal, KeyboardInterrupt):
            raise ImportError("initialization failed") from None  # as an extension module that was being imported

    with monkeypatch.context() as patch, pytest.raises(StoppedError, match=rf"^{reason} .*--resume goes on"):
        patch.setattr("esopt_jax.training.checkpoints._write_weights", spoilt)
        train(config, tmp_path / "run")
    resume(tmp_path / "run")
    check_same(tmp_path / "run", whole)


def test_stopped_three_times_the_history_is_that_of_a_run_that_never_was(config, whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(StoppedError):
        train(config, folder, at=send_at(signal.SIGTERM, Moment.AFTER_ROW))
    for moment in (Moment.HALF_ROW, Moment.AFTER_APPLIED):
        with pytest.raises(StoppedError):
            resume(folder, at=send_at(signal.SIGTERM, moment))
    resume(folder)
    check_same(folder, whole)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(errno.ENOSPC, "No space left", "x"), "the disk is full ('x'): free some space"),
        (OSError(errno.EDQUOT, "Quota"), "the disk is full: free some space"),
        (FileNotFoundError(errno.ENOENT, "No such file", "run/y"), "a file or folder vanished ('run/y')"),
        (PermissionError(errno.EACCES, "Permission denied", "z"), "Permission denied ('z')"),
    ],
)
def test_what_the_system_refuses_is_said_in_one_line(fault, message):
    stop = as_stop(fault)
    assert isinstance(stop, StoppedError) and str(stop) == message


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 8 MB, which only root can mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("moment", [Moment.BEFORE_ROW, Moment.HALF_ROW, Moment.AFTER_APPLIED, Moment.BEFORE_SUMS])
def test_a_full_disk_stops_the_run_which_goes_on_once_there_is_room(config, whole, small_disk, moment):
    ballast = small_disk / "ballast"

    def at(now):
        if now == moment and not ballast.exists():
            with ballast.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
                for size in (4096, 1):
                    while True:
                        stream.write(b"x" * size)

    with pytest.raises(StoppedError, match=r"disk is full|No space left|cannot be written"):
        train(config, small_disk / "run", at=at)
    ballast.unlink()
    resume(small_disk / "run")
    check_same(small_disk / "run", whole)


def test_going_on_while_the_disk_is_still_full_is_one_line_too(config, whole, small_disk):
    with pytest.raises(StoppedError):
        train(config, small_disk / "run", at=send_at(signal.SIGTERM, Moment.AFTER_ROW))
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        while True:
            stream.write(b"x" * 512)
    before = RunFolder(small_disk / "run").history.read_bytes()
    with pytest.raises(StoppedError, match="the disk is full") as stop:
        resume(small_disk / "run")
    assert "\n" not in str(stop.value)
    assert RunFolder(small_disk / "run").history.read_bytes() == before
    ballast.unlink()
    resume(small_disk / "run")
    check_same(small_disk / "run", whole)


def test_a_disk_too_small_for_the_final_weights_stops_the_run(config, whole, small_disk, monkeypatch):
    ballast = small_disk / "ballast"

    def fill(*args, **kwargs):
        with ballast.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
            for size in (4096, 1):
                while True:
                    stream.write(b"x" * size)
        return save_params(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(StoppedError, match=r"write a model to .*the disk is full"):
        patch.setattr("esopt_jax.training.loop.save_params", fill)
        train(config, small_disk / "run")
    ballast.unlink()
    resume(small_disk / "run")
    check_same(small_disk / "run", whole)


def test_a_disk_too_small_for_a_checkpoint_is_said_before_it_is_written(config, whole, small_disk):
    ballast = small_disk / "ballast"

    def at(now):
        if now == Moment.AFTER_APPLIED and not ballast.exists():
            ballast.write_bytes(b"x" * 7_500_000)

    with pytest.raises(StoppedError, match=r"checkpoint .* the disk is full: it needs .* GB, .* GB are free") as stop:
        train(config, small_disk / "run", at=at)
    assert "\n" not in str(stop.value) and Run(small_disk / "run").summary["status"] == "stopped"
    ballast.unlink()
    resume(small_disk / "run")
    check_same(small_disk / "run", whole)


def test_a_folder_that_vanishes_is_one_line(config, tmp_path):
    def at(now):
        if now == Moment.AFTER_APPLIED:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with pytest.raises(StoppedError, match=r"vanished|cannot be written") as stop:
        train(config, tmp_path / "run", at=at)
    assert "\n" not in str(stop.value)


def test_a_clock_that_runs_backwards_changes_nothing(config, whole, tmp_path, monkeypatch):
    now = time.time()

    def backwards():
        nonlocal now
        now -= 3600
        return now

    monkeypatch.setattr(time, "time", backwards)
    monkeypatch.setattr(time, "time_ns", lambda: int(backwards() * 1e9))
    train(config, tmp_path / "run")
    check_same(tmp_path / "run", whole)
    assert all(0 < row["wall_s"] < 600 for row in Run(tmp_path / "run").metrics())


def test_an_unreadable_folder_is_one_line(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    RunFolder(folder).history.unlink()
    RunFolder(folder).history.mkdir()  # nobody, not even root, reads that as a file
    with pytest.raises(EsoptError, match=r"history\.jsonl cannot be read: it is a folder where"):
        resume(folder, ["es.generations=5"])
