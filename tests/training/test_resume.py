"""Resuming: what may change and what may not, what is damaged and what is only missing."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from same_run import check_same, without_times

from esopt_jax.config_reader import load_config
from esopt_jax.core import members, steps
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.training.history import header_row
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.moments import Moment
from esopt_jax.training.resume import resume
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.source import load_source


@pytest.fixture(scope="module")
def config(make_config):
    return make_config(es__generations=4, eval__every=2, train__checkpoint_every=1)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """A finished run."""
    return train(config, tmp_path_factory.mktemp("whole") / "run").folder


@pytest.fixture(scope="module")
def left(config, tmp_path_factory):
    """A run that stopped in its fourth generation: three checkpoints' worth of updates, two checkpoints kept."""
    folder, passed = tmp_path_factory.mktemp("left") / "run", []

    def at(moment):
        passed.append(moment)
        if passed.count(Moment.BEFORE_ROW) == 4:
            raise EsoptError("enough")

    with pytest.raises(EsoptError, match="enough"):
        train(config, folder, at=at)
    return folder


@pytest.fixture
def stopped(left, tmp_path):
    return RunFolder(shutil.copytree(left, tmp_path / "run"))


def content(folder):
    return {str(p): p.read_bytes() for p in sorted(folder.path.rglob("*")) if p.is_file() and p.name != "lock"}


def refused(folder, message, overrides=()):
    """The run is refused, in one line, and its folder is as it was."""
    before = content(folder)
    with pytest.raises(EsoptError, match=message) as fault:
        resume(folder.path, overrides)
    assert fault.value.exit_code == 2 and "\n" not in str(fault.value)
    assert content(folder) == before


def test_it_goes_on_to_the_same_end(stopped, whole):
    resume(stopped.path)
    check_same(stopped.path, whole)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "es.sigma=0.2",
            r"--set es.sigma=0.2 contradicts the run in .*, which has 0.1; leave it out, or start a new run",
        ),
        ("rollout.temperature=0.5", r"rollout.temperature=0.5 contradicts"),
        ("env.options.x=1", r"env.options.x=1 contradicts"),
        ("eval.episodes=8", "eval.episodes=8 contradicts"),
        ("es.generations=2", "the run has 3 already"),
        ("es.sigmma=1", "did you mean 'sigma'"),
    ],
)
def test_what_would_change_the_result_is_refused(stopped, override, message):
    refused(stopped, message, [override])


def test_what_does_not_is_taken_over(stopped, whole):
    resume(stopped.path, ["log.progress=none", "train.keep_checkpoints=1", "rollout.workers=2"])
    assert load_config(stopped.config).rollout.workers == 2
    assert stopped.history.read_bytes() == RunFolder(whole).history.read_bytes()
    assert len(list(stopped.checkpoints.iterdir())) == 1


def test_a_finished_run_is_refused_unless_it_is_extended(whole, config, make_config, tmp_path):
    folder = RunFolder(shutil.copytree(whole, tmp_path / "run"))
    refused(folder, "is finished after 4 generations; to extend it give --set es.generations=N")
    resume(folder.path, ["es.generations=6"])
    longer = train(make_config(es__generations=6, eval__every=2, train__checkpoint_every=1), tmp_path / "longer")
    rows, wanted = (read(RunFolder(f).history)[1:] for f in (folder.path, longer.folder))
    assert [row for row in rows if row["kind"] != "resumed"] == wanted
    assert [row["generations"] for row in rows if row["kind"] == "resumed"] == [6]
    assert without_times(Run(folder.path).summary) == without_times(longer.summary)
    refused(folder, "is finished after 6 generations")


def test_a_schedule_that_the_extension_would_bend_is_refused(make_config, tmp_path):
    config = make_config(es__generations=2, es__sigma_schedule="cosine", es__sigma_end=0.05)
    folder = RunFolder(train(config, tmp_path / "run").folder)
    refused(
        folder, r"generation 2 the sigma .* instead of 0.05: a 2-generation schedule cannot be", ["es.generations=3"]
    )


def test_a_config_edited_by_hand_is_refused(stopped):
    stopped.config.write_text(stopped.config.read_text().replace("alpha: 0.1", "alpha: 0.3"))
    refused(stopped, r"config.yaml and the history beside it do not belong together \(es.alpha\)")


def test_another_base_is_refused_and_a_moved_one_is_not(stopped, config, whole, tmp_path):
    import tiny_agent

    other = tiny_agent.write_model(tmp_path / "other", seed=1)
    refused(stopped, "is not the one that the run began with: its digest is", [f"model.path={other}"])
    moved = shutil.copytree(config.model.path, tmp_path / "moved")
    resume(stopped.path, [f"model.path={moved}"])
    assert Run(stopped.path).summary["digest"] == Run(whole).summary["digest"]


def change_row(path, line, **changes):
    rows = read(path)
    rows[line].update(changes)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_another_noise_specification_is_refused(stopped):
    change_row(stopped.history, 0, noise_spec=2)
    refused(stopped, r"history.jsonl, line 1: noise_spec is 2; it must be 1")


def test_a_bad_middle_row_is_refused(stopped):
    change_row(stopped.history, 3, sigma="much")
    refused(stopped, r"history.jsonl, line 4: sigma is 'much'; it must be a number")
    lines = stopped.history.read_bytes().split(b"\n")
    stopped.history.write_bytes(b"\n".join([*lines[:2], lines[2][:-5], *lines[3:]]))
    refused(stopped, r"history.jsonl, line 3 is no valid row")


def test_coefficients_that_were_changed_are_refused_before_they_are_applied(stopped):
    weights = read(stopped.history)[1]["weights"]
    change_row(stopped.history, 1, weights=[*weights[:-1], 0.5])
    refused(stopped, r"history.jsonl, line 2: its weights do not follow from its fitness")


def test_a_seed_that_was_changed_on_both_sides_does_not_give_the_digests(stopped):
    shutil.rmtree(stopped.checkpoints)
    stopped.config.write_text(stopped.config.read_text().replace("seed: 0", "seed: 3"))
    config = load_config(stopped.config)
    header = header_row(config, base_digest="", fingerprint="")
    change_row(stopped.history, 0, es=header["es"], config_hash=header["config_hash"])
    refused(stopped, "replaying generation 0 gives the digest .* the history says .*: the history was changed")


def test_a_header_that_was_changed_is_refused_by_all_who_read_the_weights(stopped):
    es = read(stopped.history)[0]["es"]
    change_row(stopped.history, 0, es={**es, "seed": 3})
    refused(stopped, r"do not belong together \(es.seed\)")
    for look in (Run(stopped.path).params, Run(stopped.path).replay, lambda: load_source(stopped.path)):
        with pytest.raises(EsoptError, match=r"do not belong together \(es.seed\)"):
            look()


def test_a_config_that_was_cut_short_is_refused_by_all_who_read_the_weights(stopped):
    stopped.config.write_text(stopped.config.read_text()[:300])
    for look in (Run(stopped.path).params, Run(stopped.path).replay, lambda: load_source(stopped.path)):
        with pytest.raises(EsoptError):
            look()


def test_a_run_whose_lock_is_taken_away_stops_before_it_writes_on(stopped):
    def at(moment):
        if moment == Moment.BEFORE_ROW:
            stopped.lock.unlink(missing_ok=True)

    with pytest.raises(StoppedError, match="lock was removed or replaced: another process may write"):
        resume(stopped.path, at=at)


@pytest.mark.parametrize("name", ["summary.json", "pending.json", "evaluations.jsonl"])
def test_a_folder_where_a_file_belongs_is_refused(stopped, name):
    (stopped.path / name).unlink(missing_ok=True)
    (stopped.path / name).mkdir()
    refused(stopped, "it is a folder where a run has a file; remove it")


@pytest.mark.parametrize("name", ["final", "checkpoints/after_00002.damaged"])
def test_a_file_where_a_folder_belongs_is_refused(stopped, name):
    (stopped.path / name).touch()
    refused(stopped, "is a file where a run has a folder; remove it")


def test_a_lost_final_is_written_again(whole, tmp_path):
    folder = RunFolder(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(folder.final)
    resume(folder.path)
    check_same(folder.path, whole)


def test_damaged_checkpoints_are_passed_over(stopped, whole, caplog):
    newest = stopped.checkpoints / "after_00003"
    (newest / "SHA256SUMS").write_text("")
    resume(stopped.path)
    assert "after_00003' cannot be used" in caplog.text and "falling back" in caplog.text
    assert Run(stopped.path).summary["digest"] == Run(whole).summary["digest"]


def test_without_any_checkpoint_the_history_suffices(stopped, whole, caplog):
    caplog.set_level("INFO")
    shutil.rmtree(stopped.checkpoints)
    resume(stopped.path)
    assert "from the base model with 3 replayed" in caplog.text
    assert stopped.history.read_bytes() == RunFolder(whole).history.read_bytes()


def test_a_damaged_checkpoint_does_not_count_as_one_that_is_kept(stopped):
    (stopped.checkpoints / "after_00003" / "SHA256SUMS").write_text("")
    resume(stopped.path)
    names = sorted(p.name for p in stopped.checkpoints.iterdir())
    assert names == ["after_00003", "after_00003.damaged", "after_00004"]


@pytest.mark.parametrize("damaged", ["summary.json", "env.json"])
def test_a_damaged_file_that_the_run_can_do_without_is_said_and_passed_over(stopped, whole, caplog, damaged):
    (stopped.path / damaged).write_text('{"wall_s": "x", "compile_s": null, "generation": 2, "episodes": NaN}')
    resume(stopped.path)
    assert f"{damaged} cannot be read" in caplog.text and "going on without it" in caplog.text
    assert stopped.history.read_bytes() == RunFolder(whole).history.read_bytes()


@pytest.mark.parametrize("lost", ["metrics.jsonl", "evaluations.jsonl", "summary.json", "pending.json", "env.json"])
def test_a_lost_file_does_not_lose_the_run(stopped, whole, lost):
    (stopped.path / lost).unlink()
    resume(stopped.path)
    assert stopped.history.read_bytes() == RunFolder(whole).history.read_bytes()
    assert Run(stopped.path).summary["final"] == Run(whole).summary["final"]
    assert Run(stopped.path).summary["base"] == Run(whole).summary["base"]
    rows = [row["generation"] for row in Run(stopped.path).metrics() if "fitness/mean" in row]
    assert sorted(rows) == [0, 1, 2, 3]


def test_a_lost_history_is_refused(stopped):
    stopped.history.unlink()
    refused(stopped, r"history.jsonl is missing or empty, though .*metrics.jsonl is not")


def test_a_run_killed_before_its_header_was_whole_begins_anew(stopped, whole):
    for path in (stopped.metrics, stopped.evaluations, stopped.summary, stopped.env):
        path.unlink()
    shutil.rmtree(stopped.checkpoints)
    stopped.history.write_bytes(stopped.history.read_bytes()[:40])
    resume(stopped.path)
    check_same(stopped.path, whole)


def test_broken_metrics_are_one_line(stopped):
    rows = stopped.metrics.read_bytes()
    stopped.metrics.write_bytes(b"nonsense\n" + rows)
    refused(stopped, r"metrics.jsonl, line 1 is no valid row")
    stopped.metrics.write_bytes(b'{"generations": 0}\n' + rows)
    refused(stopped, r"metrics.jsonl, line 1 is no row of metrics; delete the line")
    stopped.metrics.write_bytes(b'{"generation": 0, "wall_s": 1.0, "tokens": "7"}\n' + rows)
    refused(stopped, r"metrics.jsonl, line 1: tokens is '7'; it must be a number or null")
    stopped.metrics.write_bytes(rows + rows.splitlines(keepends=True)[1])
    refused(stopped, r"metrics.jsonl, line \d+: generation 0 is there twice; delete one of the lines")


def test_metrics_ahead_of_a_history_that_was_put_back_are_one_line(stopped):
    lines = stopped.history.read_bytes().splitlines(keepends=True)
    stopped.history.write_bytes(b"".join(lines[:3]))
    refused(
        stopped, r"metrics.jsonl goes on to generation 1, but the history beside it knows only 1: it has lost lines"
    )


def test_broken_evaluations_are_one_line(stopped):
    rows = read(stopped.evaluations)
    for change in ({"updates": 1e300}, {"mean": 0.9}, {"solved": [1]}, {"ci95": [0.0]}, {"seconds": "x"}):
        changed = [{**rows[0], **change}, *rows[1:]]
        stopped.evaluations.write_text("".join(json.dumps(row) + "\n" for row in changed))
        refused(stopped, r"evaluations.jsonl, line 1 is no evaluation; delete the line to have it played again")


def test_a_config_that_is_not_whole_and_has_no_history_is_refused(stopped):
    for path in (stopped.history, stopped.metrics, stopped.evaluations, stopped.summary):
        path.unlink()
    for text in ("", "preset: x\n"):
        stopped.config.write_text(text)
        refused(stopped, r"config.yaml is not whole, and no history says what it was")


def test_an_extension_that_was_stopped_at_once_is_not_finished(whole, make_config, tmp_path, monkeypatch):
    folder = RunFolder(shutil.copytree(whole, tmp_path / "run"))
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("esopt_jax.training.resume._catch_up", lambda *args: 1 / 0)
        resume(folder.path, ["es.generations=6"])
    assert load_config(folder.config).es.generations == 6 and Run(folder.path).summary["status"] == "finished"
    resume(folder.path)
    assert Run(folder.path).summary["generations"] == 6


def test_folders_that_are_no_run(tmp_path):
    with pytest.raises(EsoptError, match="does not exist"):
        resume(tmp_path / "nothing")
    with pytest.raises(EsoptError, match=r"is no run folder: it holds no config\.yaml"):
        resume(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody without permission")
def test_a_folder_that_may_not_be_read_is_one_line(stopped):
    code = """
import os, sys
from pathlib import Path
from esopt_jax.training.run_folder import open_run_folder
os.setuid(65534)
open_run_folder(Path(sys.argv[1]))
"""
    with tempfile.TemporaryDirectory() as place:  # where everybody may go, unlike pytest's own
        os.chmod(place, 0o755)
        folder = shutil.copytree(stopped.path, Path(place) / "run")
        folder.chmod(0o700)
        done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert f"EsoptError: run folder {str(folder)!r} cannot be read: Permission denied" in done.stderr


def test_another_platform_is_written_down(stopped, whole, monkeypatch, caplog):
    """The fingerprint is what tells platforms apart; the arithmetic is the same here, so the weights are too."""
    shutil.rmtree(stopped.checkpoints)
    monkeypatch.setattr("esopt_jax.training.resume.fingerprint", lambda: "e" * 16)
    resume(stopped.path)
    rows = read(stopped.history)
    assert [row["fingerprint"] for row in rows if row["kind"] == "resumed"] == ["e" * 16]
    assert [row for row in rows if row["kind"] != "resumed"] == read(RunFolder(whole).history)


def test_weights_of_another_platform_are_taken_as_they_come_and_said_to_be(stopped, monkeypatch, caplog):
    """Under another fingerprint a digest that is not met is no damage."""
    caplog.set_level("INFO")
    shutil.rmtree(stopped.checkpoints)
    change_row(stopped.history, 2, digest="0" * 32)
    monkeypatch.setattr("esopt_jax.training.resume.fingerprint", lambda: "e" * 16)
    resume(stopped.path)
    assert "computed on another platform, so equal to tolerance only" in caplog.text


def test_live_resume_and_replay_share_the_compiled_programs(config, whole, stopped, tmp_path):
    """A second formulation of perturbation or update would be a second entry in the caches of their programs."""
    train(config, tmp_path / "warm")
    programs = steps.update_pool, steps.update_large, members.pooled_members, members.large_members
    before = [program._cache_size() for program in programs]
    assert sum(before) > 0
    again = shutil.copytree(stopped.path, tmp_path / "again")
    shutil.rmtree(stopped.checkpoints)
    resume(stopped.path)
    resume(again)  # from a checkpoint, whose arrays must not be of another kind
    Run(whole).replay()
    Run(whole).params(2)
    assert [program._cache_size() for program in programs] == before


def test_nothing_but_core_update_moves_weights():
    """And no other module of the package calls those programs or writes one of its own."""
    import re

    import esopt_jax

    package = Path(esopt_jax.__file__).parent
    callers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\b(update_pool|update_large|sum_window|sum_pool)\(", path.read_text())
    }
    assert callers == {"core/update.py", "core/steps.py", "core/estimate.py"}
    makers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\bmake_update\(", path.read_text())
    }
    assert makers == {"core/update.py", "training/restore.py", "search/evolver.py"}


def test_a_stop_while_going_on_counts_what_was_before(stopped, whole):
    def at(moment):
        if moment == Moment.AFTER_APPLIED:
            raise StoppedError("again")

    with pytest.raises(StoppedError, match="again"):
        resume(stopped.path, at=at)
    summary = Run(stopped.path).summary
    assert summary["generations"] == 3 and summary["train_episodes"] == 3 * 64
    began = time.perf_counter()
    resume(stopped.path)
    took = time.perf_counter() - began
    check_same(stopped.path, whole)
    assert summary["wall_s"] < Run(stopped.path).summary["wall_s"] < summary["wall_s"] + took
    rows = Run(stopped.path).metrics()
    assert [row["wall_s"] for row in rows] == sorted(row["wall_s"] for row in rows)
