"""Models of the Hugging Face hub: `org/name` or `org/name@revision`, from the local cache where that has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.models.tensor_files import open_weights

NEEDED = ("config.json", "tokenizer.json", "tokenizer_config.json")
"""Files without which a cached model is not whole; of its weights, all that the index names."""
FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""What a model is loaded and saved with; other formats of the same weights stay where they are."""

_ID = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w.][\w./-]*))?")
_FILE_ENDING = re.compile(r"\.(safetensors|gguf|json|ya?ml|bin|pth?)$")


def is_hub_id(text: str) -> bool:
    """Whether `text` can only mean the hub: nothing that looks like a path, and no folder here is called so.

    With a revision it is never a path: `org/name@main` reaches the hub although a folder `org` is here.

    Example:
        >>> [is_hub_id(text) for text in ("Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-4B@main", "./a/b", "a/b/c", "model")]
        [True, True, False, False, False]
    """
    match = _ID.fullmatch(text)
    if match is None or _FILE_ENDING.search(text):
        return False
    return match["revision"] is not None or not Path(text).parent.exists()


def hub_folder(text: str) -> Path:
    """The folder of a hub model in the local cache, downloaded first where the cache lacks it.

    A model that is cached whole is used as it is, without asking whether the hub has a newer one. Where only its
    generation config is missing, which not every model has, the hub is asked, and the cache will do if it is silent.

    Raises:
        EsoptError: it is not cached and cannot be downloaded.
    """
    from huggingface_hub import snapshot_download

    match = _ID.fullmatch(text)
    assert match is not None
    wanted = {
        "repo_id": match["name"],
        "revision": match["revision"],
        "allow_patterns": FILES,
        "ignore_patterns": "*/*",
    }
    cached = _whole(wanted)
    if cached is not None and (cached / "generation_config.json").is_file():
        return cached
    try:
        return Path(snapshot_download(**wanted))
    except Exception as fault:  # the library passes on what its transport raises, in many types
        if cached is not None:
            return cached
        reason = " ".join(str(fault).split()) or type(fault).__name__
        raise EsoptError(
            f"model {text!r} is not in the local cache and cannot be downloaded from the Hugging Face hub: "
            f"{reason[:300]}; give a folder, or download it where there is a network and set HF_HOME"
        ) from None


def hub_config(text: str) -> Path:
    """The `config.json` of a hub model, from the local cache or the hub; its weights stay where they are.

    Raises:
        EsoptError: it is not cached and cannot be downloaded.
    """
    from huggingface_hub import hf_hub_download

    match = _ID.fullmatch(text)
    assert match is not None
    try:
        return Path(hf_hub_download(match["name"], "config.json", revision=match["revision"]))
    except Exception as fault:  # the library passes on what its transport raises, in many types
        reason = " ".join(str(fault).split()) or type(fault).__name__
        raise EsoptError(
            f"the config.json of model {text!r} is not in the local cache and cannot be downloaded from the Hugging "
            f"Face hub: {reason[:300]}; give a folder or the name of a published size"
        ) from None


def _whole(wanted: dict[str, Any]) -> Path | None:
    """The folder of a model in the cache, if nothing that is needed is missing there."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(**wanted, local_files_only=True))
        return folder if all((folder / name).is_file() for name in NEEDED) and open_weights(folder) else None
    except (OSError, ValueError, EsoptError):
        return None
