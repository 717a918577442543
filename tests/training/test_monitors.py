"""Monitors get every row, continue on a resume, and never stop a run."""

import logging
import socket
import struct
import sys
import types

import pytest

from esopt_jax.config_reader import from_dict
from esopt_jax.errors import EsoptError
from esopt_jax.training.monitors import PACKAGES, check_monitor, monitor


def _config(name):
    return from_dict({"preset": "toy", "log": {"monitor": name}})


def _row(generation, **values):
    return {"generation": generation, "fitness/mean": generation / 10, "update/cosine": None, **values}


def _events(folder):
    """(tag, step, value) of every event file in the order of their names.

    A record is its length, a checksum of that, the data and a checksum of these.
    """
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    found = []
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            record = data[at + 12 : at + 12 + length]
            assert struct.unpack_from("<I", data, at + 12 + length) == (masked_crc32c(record),)
            event = Event.FromString(record)
            found += [(value.tag, event.step, round(value.simple_value, 6)) for value in event.summary.value]
            at += 12 + length + 4
    return found


def test_no_monitor_needs_nothing(tmp_path):
    with monitor(_config("none"), tmp_path) as send:
        send(_row(0))
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_events_read_back(tmp_path):
    with monitor(_config("tensorboard"), tmp_path) as send:
        send(_row(0, tokens=7, preset="text"))
        assert len(_events(tmp_path / "tensorboard")) == 2  # on the disk before the run ends
        send({"generation": 1, "eval/solve_rate": 0.25})
    assert _events(tmp_path / "tensorboard") == [
        ("fitness/mean", 0, 0.0),
        ("tokens", 0, 7.0),
        ("eval/solve_rate", 1, 0.25),
    ]


def test_tensorboard_continues_on_a_resume(tmp_path):
    for generations in (range(2), range(2, 4)):
        with monitor(_config("tensorboard"), tmp_path) as send:
            for generation in generations:
                send(_row(generation))
    assert [step for _, step, _ in _events(tmp_path / "tensorboard")] == [0, 1, 2, 3]
    names = [path.name for path in (tmp_path / "tensorboard").iterdir()]
    assert len(names) == 2 and not any(socket.gethostname() in name for name in names)


class _Trackio(types.ModuleType):
    """Stands in for trackio. `broken` names the function that fails."""

    def __init__(self, broken=None):
        super().__init__("trackio")
        self.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
        self.calls: list = []
        self.broken = broken

    def _call(self, name, /, *args, **kwargs):
        self.calls.append((name, args, kwargs))
        print("* greetings")
        if name == self.broken:
            raise ConnectionError("service\nlost")

    def init(self, **kwargs):
        self._call("init", **kwargs)

    def log(self, metrics, step):
        self._call("log", metrics, step)

    def finish(self):
        self._call("finish")


@pytest.fixture
def trackio(monkeypatch):
    def install(broken=None):
        module = _Trackio(broken)
        monkeypatch.setitem(sys.modules, "trackio", module)
        return module

    return install


def test_trackio_gets_the_config_and_the_rows(tmp_path, trackio, capsys):
    module = trackio()
    with monitor(_config("trackio"), tmp_path) as send:
        send(_row(3, tokens=7))
        capsys.readouterr()
    (_, _, init), (_, logged, _), (last, _, _) = module.calls
    assert init["project"] == "toy" and init["resume"] == "allow" and init["config"]["es"]["seed"] == 0
    assert logged == ({"fitness/mean": 0.3, "tokens": 7}, 3) and last == "finish"
    assert capsys.readouterr().out == ""  # standard output is for results


def test_trackio_continues_the_same_run_of_a_folder_and_no_other(tmp_path, trackio):
    module = trackio()
    first, second = tmp_path / "a" / "out", tmp_path / "b" / "out"
    for folder in (first, second, first):
        folder.mkdir(parents=True, exist_ok=True)
        with monitor(_config("trackio"), folder):
            pass
    one, other, again = [kwargs["name"] for name, _, kwargs in module.calls if name == "init"]
    assert one == again != other and one.startswith("out-")


@pytest.mark.parametrize(("broken", "logged"), [("init", 0), ("log", 1), ("finish", 2)])
def test_a_monitor_that_fails_is_logged_once_and_dropped(tmp_path, trackio, caplog, broken, logged):
    module = trackio(broken)
    with caplog.at_level(logging.WARNING, "esopt_jax"), monitor(_config("trackio"), tmp_path) as send:
        send(_row(0))
        send(_row(1))
    assert [record.getMessage() for record in caplog.records] == [
        "monitor trackio dropped, the run goes on: ConnectionError: service lost"
    ]
    assert sum(name == "log" for name, _, _ in module.calls) == logged


def test_a_run_that_fails_still_closes_its_monitor(tmp_path, trackio):
    module = trackio()
    with pytest.raises(ZeroDivisionError), monitor(_config("trackio"), tmp_path):
        raise ZeroDivisionError
    assert module.calls[-1][0] == "finish"


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_refused_before_the_run(tmp_path, monkeypatch, name):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(EsoptError, match=rf"pip install 'esopt-jax\[{name}\]'"):
        check_monitor(_config(name))
    with pytest.raises(EsoptError, match=r"set log\.monitor=none"), monitor(_config(name), tmp_path):
        pytest.fail("the run started")
    assert list(tmp_path.iterdir()) == []
