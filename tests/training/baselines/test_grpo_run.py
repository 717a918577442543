"""A run of GRPO as a folder: resumed anywhere it is the run that never stopped; it is not replayed, and says so."""

import pytest
from same_run import check_same

from esopt_jax.cli.main import main
from esopt_jax.core.digest import digest
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.moments import Moment
from esopt_jax.training.resume import resume
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.seeds import train_seeds

SETTINGS = {
    "method": "grpo",
    "grpo__group_size": 4,
    "grpo__lr": 5e-3,
    "grpo__batches": 2,
    "grpo__micro_batch": 16,
    "es__generations": 4,
    "eval__every": 1,
    "train__checkpoint_every": 2,
}


@pytest.fixture(scope="module")
def config(make_config):
    return make_config(**SETTINGS)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """A finished run."""
    return train(config, tmp_path_factory.mktemp("whole") / "run").folder


def stop_at(config, folder, moment, times):
    passed = []

    def at(now):
        passed.append(now)
        if passed.count(moment) == times:
            raise StoppedError("enough")

    with pytest.raises(StoppedError, match="enough"):
        train(config, folder, at=at)


@pytest.mark.parametrize(
    ("moment", "times"),
    [(Moment.BEFORE_ROW, 1), (Moment.UPDATE, 3), (Moment.AFTER_APPLIED, 4), (Moment.BEFORE_SUMS, 2)],
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(config, whole, tmp_path, moment, times):
    """Before any checkpoint, between two, and while the second one is being written."""
    folder = tmp_path / "run"
    stop_at(config, folder, moment, times)
    resume(folder)
    check_same(folder, whole)


def test_a_damaged_checkpoint_is_passed_over(config, whole, tmp_path):
    folder = tmp_path / "run"
    stop_at(config, folder, Moment.AFTER_APPLIED, 3)
    (weights,) = (folder / "checkpoints").glob("after_00002/checkpoint.json")
    weights.write_text(weights.read_text() + " ")
    resume(folder)
    check_same(folder, whole)


def test_what_the_folder_holds(whole, config):
    files, rows = RunFolder(whole), read(RunFolder(whole).history)
    assert rows[0]["method"] == "grpo" and rows[0]["grpo"]["group_size"] == 4
    assert [row["kind"] for row in rows[1:]] == ["step", "applied"] * 4
    assert len(rows[1]["returns"]) == 8 and {len(own) for own in rows[1]["returns"]} == {4}
    steps = [row for row in read(files.metrics) if "fitness/mean" in row]
    assert [row["generation"] for row in steps] == [0, 1, 2, 3]
    assert steps[0]["grpo/ratio_off"] > 0  # the second batch of a step is no longer on policy
    assert {"reward", "reward_std", "turns/mean", "invalid_action_rate", "time/update_s"} <= set(steps[0])
    assert Run(whole).summary["status"] == "finished" and Run(whole).summary["train_episodes"] == 4 * 8 * 4
    assert sum(1 for _ in Run(whole).episodes(3)) >= 8


def test_weights_come_from_checkpoints_only(whole):
    rows = read(RunFolder(whole).history)
    assert digest(Run(whole).params()) == rows[-1]["digest"] == Run(whole).summary["digest"]
    assert digest(Run(whole).params(2)) == rows[4]["digest"]
    assert digest(Run(whole).params(0)) == rows[0]["base_digest"]
    with pytest.raises(EsoptError, match=r"cannot be replayed.* has weights after 0, 2, 4"):
        Run(whole).params(3)
    with pytest.raises(EsoptError, match="method 'grpo', whose steps cannot be replayed"):
        Run(whole).replay()


def test_a_finished_run_can_be_extended_but_not_changed(whole, tmp_path):
    import shutil

    folder = shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(EsoptError, match="is finished after 4 generations"):
        resume(folder)
    with pytest.raises(EsoptError, match="contradicts the run"):
        resume(folder, ["grpo.lr=1"])
    summary = resume(folder, ["es.generations=5"]).summary
    assert summary["generations"] == 5 and summary["train_episodes"] == 5 * 8 * 4


def test_seeds_go_on_and_finish(make_config, tmp_path):
    config = make_config(**{**SETTINGS, "es__generations": 1})
    first = train_seeds(config, [0, 1], tmp_path / "runs")
    assert first["seeds"] == [0, 1] and train_seeds(config, [0, 1], tmp_path / "runs") == first


def test_commands_read_the_folder(whole, tmp_path, capsys):
    assert main(["plot", str(whole), "--out", str(tmp_path / "curve.png")]) == 0
    assert main(["export", str(whole), "--out", str(tmp_path / "model")]) == 0
    assert main(["replay", str(whole)]) == 2
    assert "cannot be replayed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"rollout__temperature": 0}, "rollout.temperature is 0"),
        ({"es__master": "split"}, "es.master is 'split'; it must be float32 for method grpo"),
        ({"grpo__group_size": 1}, "grpo.group_size is 1; it must be at least 2"),
        ({"method": "gpro"}, "did you mean 'grpo'"),
    ],
)
def test_bad_input_is_one_line(make_config, overrides, message):
    with pytest.raises(EsoptError, match=message):
        make_config(**{**SETTINGS, **overrides})
