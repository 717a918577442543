import jax
import pytest

from esopt_jax.training.compile_cache import cache_folder, use_compile_cache


@pytest.fixture
def no_cache_yet():
    before = (jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


def test_own_variable_wins_over_the_xdg_one(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("ESOPT_CACHE", raising=False)
    assert cache_folder() == tmp_path / "xdg" / "esopt_jax" / "xla"
    monkeypatch.setenv("ESOPT_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "xla"


def test_folder_is_created_and_set(no_cache_yet, tmp_path):
    assert use_compile_cache(tmp_path / "new" / "xla") == tmp_path / "new" / "xla"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "new" / "xla")


def test_folder_that_cannot_be_written_is_a_warning_and_the_run_goes_on(no_cache_yet, tmp_path, caplog):
    (tmp_path / "file").touch()
    assert use_compile_cache(tmp_path / "file" / "xla") is None
    assert "no compile cache" in caplog.text and "ESOPT_CACHE" in caplog.text
    assert jax.config.jax_compilation_cache_dir is None


def test_a_folder_the_user_set_is_kept(no_cache_yet, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert use_compile_cache(tmp_path / "other") == tmp_path
