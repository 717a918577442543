"""Shares, and what one process alone makes of exchanges; several processes are in tests/sharding."""

import jax
import pytest

from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.rollouts import processes


@pytest.fixture
def as_one_of(monkeypatch):
    def put(index, count):
        monkeypatch.setattr(processes, "index", lambda: index)
        monkeypatch.setattr(processes, "count", lambda: count)

    return put


@pytest.mark.parametrize("items", [0, 1, 5, 8])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_shares_are_even_and_together_they_are_all(as_one_of, items, count):
    shares = []
    for index in range(count):
        as_one_of(index, count)
        shares.append(processes.share(range(items)))
    assert [item for own in shares for item in own] == list(range(items))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_exchanges_nothing():
    assert processes.gathered(b"x") == [b"x"] and processes.agreed("x") and processes.is_owner()
    with pytest.raises(StoppedError, match="as it was"), processes.peers_told():
        raise StoppedError("as it was")


@pytest.mark.parametrize(
    ("slurm", "given"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "2", "SLURM_STEP_NUM_NODES": "2", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [0, 1, 2, 3]),
        ({"SLURM_NTASKS": "8", "SLURM_STEP_NUM_NODES": "2", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, None),
        ({"SLURM_NTASKS": "2", "SLURM_STEP_NUM_NODES": "2"}, None),
    ],
)
def test_the_only_task_of_a_node_takes_all_its_gpus(monkeypatch, slurm, given):
    for name in ("SLURM_NTASKS", "SLURM_STEP_NUM_NODES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    seen = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda *args, **kwargs: seen.update(kwargs))
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: None)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(processes, "_live", lambda: [0])
    with processes.joined():
        assert seen["local_device_ids"] == given


def test_what_cannot_be_joined_is_one_line(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("DEADLINE_EXCEEDED: no answer\nin detail")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    said = r"^cannot join the other processes: DEADLINE_EXCEEDED: no answer$"
    with pytest.raises(EsoptError, match=said), processes.joined("host:1", 2, 1):
        pass
