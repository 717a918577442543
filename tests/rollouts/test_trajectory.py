"""Episodes survive the disk, and a damaged file says so."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.trajectory import read_trajectories, write_trajectories
from esopt_jax.types import Trajectory, Turn

ODD = {
    "count": np.int64(3),
    "array": np.zeros(2),
    "thing": object,
    "score": math.nan,
    "scores": (1.0, math.inf),
    "numpy": np.float32(-math.inf),
}


def episode(member: int = 3) -> Trajectory:
    turn = Turn((1, 2), (3, 4), "set 1 2 3\n\u00e9", 0.5, False, True, 0.25, {"verdict": "placed"})
    return Trajectory(7, member, 5, "task-5", 1, (turn, turn), "success", 1.0, 0.5)


def broken() -> Trajectory:
    turn = Turn((1,), (2,), "x", math.nan, False, False, 0.1, {"error": "timed out"})
    return Trajectory(7, 0, 5, "task-5", 0, (turn,), "error", math.nan, math.nan, error="timed out")


def test_what_is_read_is_what_was_written(tmp_path):
    path = tmp_path / "trajectories" / "gen_00007.jsonl.gz"
    write_trajectories(path, [episode(), broken()])
    good, bad = read_trajectories(path)
    assert good == episode()
    assert bad.error == "timed out"
    assert math.isnan(bad.reward)
    assert math.isnan(bad.turns[0].reward)
    assert list(path.parent.iterdir()) == [path]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]  # strict JSON, no NaN
    assert lines[1]["reward"] is None
    assert lines[1]["turns"][0]["reward"] is None


def test_equal_episodes_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        write_trajectories(tmp_path / name, [episode()])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_info_of_an_environment_need_not_be_json(tmp_path):
    turn = Turn((1,), (2,), "x", 0.0, False, False, 0.1, {**ODD, "text": "\ud800"})
    write_trajectories(tmp_path / "x", [Trajectory(0, 0, 0, "t", 0, (turn,), "failure", 0.0, 0.0)])
    info = next(read_trajectories(tmp_path / "x")).turns[0].info
    assert info["count"] == 3
    assert info["score"] == "nan"
    assert info["scores"] == [1.0, "inf"]
    assert info["numpy"] == "-inf"
    assert info["text"] == "\ud800"
    assert isinstance(info["array"], str)


def test_absent_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(EsoptError, match="does not exist"):
        list(read_trajectories(tmp_path / "none"))
    write_trajectories(tmp_path / "cut", [episode(member) for member in range(50)])
    whole = (tmp_path / "cut").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EsoptError, match="no episode can be read"):
        list(read_trajectories(tmp_path / "cut"))
    with gzip.open(tmp_path / "other", "wt") as file:
        file.write('{"member": 1}\n')
    with pytest.raises(EsoptError, match="line 1"):
        list(read_trajectories(tmp_path / "other"))
