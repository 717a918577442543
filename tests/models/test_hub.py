"""Models by their name on the hub: from the cache without the network, else one clear line; never for a path."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from esopt_jax.errors import EsoptError
from esopt_jax.models.hub import FILES
from esopt_jax.models.load import load_model

COMMIT = "0" * 40


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache in `hub.cache`; `hub.asked` lists what the network was asked for, which always fails."""
    import huggingface_hub
    import huggingface_hub.constants

    class Hub:
        cache = tmp_path / "cache"
        asked: list[dict] = []  # noqa: RUF012

        def put(self, folder: Path, name: str, revision: str = "main") -> Path:
            repo = self.cache / f"models--{name.replace('/', '--')}"
            (repo / "refs").mkdir(parents=True, exist_ok=True)
            (repo / "refs" / revision).write_text(COMMIT)
            snapshot = Path(shutil.copytree(folder, repo / "snapshots" / COMMIT))
            Tokenizer(WordLevel({"a": 0}, unk_token="a")).save(str(snapshot / "tokenizer.json"))
            for other in ("tokenizer_config.json", "generation_config.json"):
                (snapshot / other).write_text("{}")
            return snapshot

    real, hub = huggingface_hub.snapshot_download, Hub()

    def download(*, local_files_only=False, **wanted):
        if not local_files_only:
            hub.asked.append(wanted)
            raise ConnectionError("Name or service\nnot known")
        return real(local_files_only=True, **wanted)

    hub.asked.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub.cache))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    return hub


def test_what_is_cached_is_used_without_the_network(hub, write, config):
    folder = write(config)
    snapshot = hub.put(folder, "some-org/Tiny-0.1B")
    for name in ("some-org/Tiny-0.1B", "some-org/Tiny-0.1B@main", f"some-org/Tiny-0.1B@{COMMIT}"):
        model = load_model(name)
        assert model.folder == snapshot and hub.asked == []
    ours = load_model(folder).params
    assert all((model.params[path] == leaf).all() for path, leaf in ours.items())


def test_what_is_not_cached_is_asked_for_and_told_in_one_line(hub):
    with pytest.raises(EsoptError) as caught:
        load_model("some-org/none@v1")
    text = str(caught.value)
    assert "\n" not in text and "'some-org/none@v1' is not in the local cache" in text
    assert "Name or service not known" in text and "HF_HOME" in text
    (asked,) = hub.asked
    assert (asked["repo_id"], asked["revision"], asked["allow_patterns"]) == ("some-org/none", "v1", FILES)


def test_a_generation_config_that_is_missing_is_asked_for_and_can_be_done_without(hub, write, config):
    snapshot = hub.put(write(config), "some-org/plain")
    (snapshot / "generation_config.json").unlink()
    assert load_model("some-org/plain").folder == snapshot and len(hub.asked) == 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_half_a_cached_model_is_completed(hub, write, config, name):
    (hub.put(write(config), "some-org/half") / name).unlink()
    with pytest.raises(EsoptError, match="cannot be downloaded"):
        load_model("some-org/half")
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    "path",
    [
        "./some-org/name",
        "../some-org/name",
        "~/some-org",
        "/some-org/name",
        "a/b/c",
        "model",
        "here/name",
        "org/a.gguf",
    ],
)
def test_a_path_never_reaches_the_network(hub, path, tmp_path):
    (tmp_path / "here").mkdir()
    for given in (path, Path(path)):
        with pytest.raises(EsoptError, match="does not exist"):
            load_model(given)
    with pytest.raises(EsoptError, match="does not exist"):
        load_model(Path("some-org/name"))
    assert hub.asked == []
    if path == "here/name":  # unless a revision says that the hub is meant
        with pytest.raises(EsoptError, match="cannot be downloaded"):
            load_model("here/name@main")
