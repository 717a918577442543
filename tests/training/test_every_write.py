"""A run that dies before any single change it makes to the disk goes on to the same result."""

import os
import re
import threading

import pytest
from same_run import check_same

from esopt_jax.errors import EsoptError
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.resume import resume
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder

CHANGES = ("fsync", "replace", "rename", "unlink", "mkdir")
"""Functions of `os` through which the package makes a file last or changes a name."""


PARTS = re.compile(r"[0-9a-f]{32}")


class Killed(BaseException):
    """Nothing catches it, and nothing is written on its way."""


@pytest.fixture(scope="module")
def config(make_config):
    return make_config(es__generations=3, eval__every=2, eval__best_random=True, train__checkpoint_every=1)


def place(what, dir_fd=None, **_):
    """The path that a function of `os` is called with, also where that is a descriptor or relative to one."""
    if isinstance(what, int):
        return os.readlink(f"/proc/self/fd/{what}")
    return os.path.join("" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}"), os.fspath(what))


@pytest.fixture
def dies(monkeypatch, tmp_path):
    """Count the changes that the main thread makes below `tmp_path`, and die before the n-th.

    Elsewhere is the cache of compiled programs, which is written more or less often; and orbax cuts its weights into
    more or fewer parts.
    """

    def arrange(nth):
        made = []
        for name in CHANGES:
            whole = getattr(os, name)

            def change(*args, whole=whole, **kwargs):
                own, where = threading.current_thread() is threading.main_thread(), place(args[0], **kwargs)
                if own and where.startswith(str(tmp_path)) and not PARTS.fullmatch(os.path.basename(where)):
                    made.append(args)
                    if len(made) == nth:
                        raise Killed
                return whole(*args, **kwargs)

            monkeypatch.setattr(os, name, change)
        return made

    yield arrange


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    return train(config, tmp_path_factory.mktemp("whole") / "run").folder


def go_on(config, folder, overrides=()):
    """What a scheduler does: resume if there is a run, else start it."""
    return resume(folder, overrides) if RunFolder(folder).config.exists() else train(config, folder)


def count(config, folder, dies, monkeypatch):
    with monkeypatch.context():
        made = dies(0)
        train(config, folder)
        monkeypatch.undo()
    return len(made)


def check_from(config, whole, tmp_path, dies, monkeypatch, numbers):
    for nth in numbers:
        folder = tmp_path / f"run-{nth}"
        dies(nth)
        with pytest.raises(Killed):
            train(config, folder)
        monkeypatch.undo()
        go_on(config, folder)
        check_same(folder, whole)


def test_some_writes(config, whole, tmp_path, dies, monkeypatch):
    total = count(config, tmp_path / "counted", dies, monkeypatch)
    assert total > 40
    check_from(config, whole, tmp_path, dies, monkeypatch, range(1, total + 1, 9))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_write(config, whole, tmp_path, dies, monkeypatch):
    total = count(config, tmp_path / "counted", dies, monkeypatch)
    check_from(config, whole, tmp_path, dies, monkeypatch, range(1, total + 1))


def test_dying_while_going_on_and_while_extending(config, whole, make_config, tmp_path, dies, monkeypatch):
    """The first changes of `resume` are its own: it must be able to die there, and to be asked again."""
    longer = train(
        make_config(es__generations=4, eval__every=2, eval__best_random=True, train__checkpoint_every=1),
        tmp_path / "longer",
    )
    folder = tmp_path / "run"
    train(config, folder)
    for nth in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12):
        dies(nth)
        with pytest.raises(Killed):
            resume(folder, ["es.generations=4"])
        monkeypatch.undo()
    resume(folder, ["es.generations=4"])
    rows = [row for row in read(RunFolder(folder).history) if row["kind"] != "resumed"]
    assert rows[1:] == read(RunFolder(longer.folder).history)[1:]
    assert Run(folder).summary["digest"] == longer.summary["digest"]
    with pytest.raises(EsoptError, match="is finished after 4"):
        resume(folder)
