import os

import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.training.run_folder import RunFolder, check_run_dir, create_run_folder, next_run_dir


def test_new_and_empty_folders_are_accepted_and_nothing_is_created_by_looking(tmp_path):
    check_run_dir(tmp_path)
    check_run_dir(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(EsoptError, match="not empty; give a new --run-dir"):
        check_run_dir(tmp_path)


@pytest.mark.parametrize(("below", "message"), [("", "is not a folder"), ("a/b", "lies below .* not a folder")])
def test_regular_file_in_the_way_is_refused(tmp_path, below, message):
    (tmp_path / "file").touch()
    with pytest.raises(EsoptError, match=message):
        check_run_dir(tmp_path / "file" / below)


def test_folder_without_write_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # permissions do not bind root
    with pytest.raises(EsoptError, match="cannot be written"):
        check_run_dir(tmp_path / "new")


def test_dangling_link_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(EsoptError, match="link"):
        check_run_dir(tmp_path / "link")


def test_name_too_long_for_the_file_system_is_one_clear_error(tmp_path):
    with pytest.raises(EsoptError, match=r"cannot be (used|written)"), create_run_folder(tmp_path / ("x" * 5000), ""):
        pass


def test_next_folder_follows_the_highest_number(tmp_path):
    assert next_run_dir("toy", tmp_path / "none") == tmp_path / "none" / "toy-1"
    for name in ("toy-2", "toy-10", "toy-x", "toys-99"):
        (tmp_path / name).mkdir()
    assert next_run_dir("toy", tmp_path) == tmp_path / "toy-11"
    assert next_run_dir("../up", tmp_path).parent == tmp_path


def test_created_folder_holds_the_config_and_cannot_be_created_twice(tmp_path):
    with create_run_folder(tmp_path / "run", "preset: toy\n") as (folder, _):
        assert folder.config.read_text() == "preset: toy\n"
        with pytest.raises(EsoptError, match="is in use by process"), create_run_folder(tmp_path / "run", ""):
            pass
    with pytest.raises(EsoptError, match="not empty"), create_run_folder(tmp_path / "run", ""):
        pass
    assert folder.config.read_text() == "preset: toy\n"


def test_a_folder_whose_process_died_before_it_wrote_anything_can_be_used(tmp_path):
    for name in ("lock", "config.yaml.partial"):
        (tmp_path / name).touch()
    with create_run_folder(tmp_path, "preset: toy\n") as (folder, _):
        assert folder.config.read_text() == "preset: toy\n"


def test_trajectory_names_sort_by_generation(tmp_path):
    names = [RunFolder(tmp_path).trajectories(g).name for g in (2, 12, 100)]
    assert names == sorted(names) == ["gen_00002.jsonl.gz", "gen_00012.jsonl.gz", "gen_00100.jsonl.gz"]
