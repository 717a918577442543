"""What the processes beside the first keep to themselves; several of them run in tests/sharding."""

import pytest

from esopt_jax.config import config_hash
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.rollouts import processes
from esopt_jax.training.mirror import own_copy, own_folder, quiet


@pytest.fixture
def second(monkeypatch):
    monkeypatch.setattr(processes, "index", lambda: 1)


def test_the_first_process_keeps_the_config_and_the_folder(tmp_path):
    config = load_config("smoke")
    assert quiet(config) is config
    with own_folder(tmp_path / "run") as place:
        assert place == tmp_path / "run"


def test_the_others_show_nothing_and_run_the_same(second):
    config = load_config("smoke", ["log.progress=plain", "log.monitor=tensorboard", "log.trajectories=all"])
    log = quiet(config).log
    assert (log.progress, log.monitor, log.trajectories) == ("none", "none", "none")
    assert config_hash(quiet(config)) == config_hash(config)


def test_the_others_have_a_folder_that_vanishes(second, tmp_path):
    with own_folder(tmp_path / "run") as place:
        place.mkdir()
        assert tmp_path not in place.parents
    assert not place.parent.exists() and not (tmp_path / "run").exists()


def test_the_others_go_on_with_a_copy_of_the_records_without_weights(second, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints" / "after_00001").mkdir(parents=True)
    for name in ("config.yaml", "history.jsonl", "lock"):
        (run / name).write_text(name)
    with own_copy(run) as copy:
        assert sorted(path.name for path in copy.path.iterdir()) == ["config.yaml", "history.jsonl"]
        copy.history.write_text("more")
    assert (run / "history.jsonl").read_text() == "history.jsonl" and not copy.path.exists()


def test_a_folder_that_only_the_first_sees_is_said_to_be_so(second, tmp_path):
    with (
        pytest.raises(EsoptError, match="does not exist; all processes must see the same folder"),
        own_copy(tmp_path / "x"),
    ):
        pass
