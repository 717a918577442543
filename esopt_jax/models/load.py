"""Read a model from a Hugging Face folder, from the hub, or one shipped in the package."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.models.architecture import Architecture, read_json
from esopt_jax.models.gguf_file import find_gguf, read_gguf
from esopt_jax.models.hub import hub_config, hub_folder, is_hub_id
from esopt_jax.models.registry import leaf_specs, load_architecture, parse_architecture
from esopt_jax.models.sizes import published_name
from esopt_jax.models.stored_params import StoredParams, match_tensors
from esopt_jax.models.tensor_files import DTYPES, open_weights
from esopt_jax.types import Specs

BUILTIN = Path(__file__).parent / "builtin"


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
        arch: its architecture.
        specs: its table of leaves.
        params: weights by canonical leaf path: all in memory (`load_model`), or read one by one (`open_model`).
        dtypes: tensor name in a text-only file -> dtype in its file, so that a saved model has the types it came with.
        tokenizer_path: the `tokenizer.json` beside it, or None.
        eos_ids: every token id that ends a turn, sorted; the union over the folder's files.
        vocab_limit: ids from here on are padding of the vocabulary and must not be sampled.
        folder: where it was read from; of a GGUF model, its file.
    """

    arch: Architecture
    specs: Specs
    params: Mapping[str, jax.Array]
    dtypes: dict[str, np.dtype]
    tokenizer_path: Path | None
    eos_ids: tuple[int, ...]
    vocab_limit: int
    folder: Path


def load_model(path: str | Path, mesh: Mesh | None = None) -> Model:
    """The model in a folder, in a GGUF file or on the hub, with all its weights in float32.

    Args:
        path: a folder with `config.json` and safetensors, one file or shards; a GGUF file; `org/name` or
            `org/name@revision` of the Hugging Face hub; or `builtin:NAME`, one shipped in the package.
        mesh: (member, model); each device reads its part of the weights. None for the default device.

    Raises:
        EsoptError: in one line, for a folder that is absent or incomplete and for weights that do not fit its config.

    Example:
        >>> model = load_model("builtin:sudoku-4x4")
        >>> len(model.specs) == len(model.params), model.folder.name
        (True, 'sudoku-4x4')
    """
    model = open_model(path, mesh, dtype=jnp.float32)
    return dataclasses.replace(model, params=dict(model.params))


def open_model(path: str | Path, mesh: Mesh | None = None, *, dtype: Any = None) -> Model:
    """The same without its weights in memory: `params` reads a leaf from the disk at each access.

    Args:
        path: as for `load_model`.
        mesh: as for `load_model`.
        dtype: float32; or None for bfloat16 where the files have bfloat16, else float32.

    Raises:
        EsoptError: as `load_model`; everything that is wrong shows here, before a weight is read.

    Example:
        >>> model = open_model("builtin:sudoku-4x4")
        >>> model.params["norm.weight"].shape
        (48,)
    """
    folder = resolve_folder(path)
    gguf = read_gguf(folder) if folder.suffix == ".gguf" else None
    config = gguf.config if gguf else read_json(folder / "config.json")
    arch = parse_architecture(config)
    specs = leaf_specs(arch)
    tensors = match_tensors(gguf or open_weights(folder), specs, tied=arch.tie_word_embeddings)
    tokenizer = folder / "tokenizer.json"
    tokenizer = tokenizer if tokenizer.is_file() else None
    return Model(
        arch=arch,
        specs=specs,
        params=StoredParams(specs, tensors, mesh=mesh, dtype=dtype),
        dtypes={name: DTYPES[tensor.dtype] for name, tensor in tensors.items()},
        tokenizer_path=tokenizer,
        eos_ids=_eos_ids(config, folder / "generation_config.json"),
        vocab_limit=gguf.vocab_limit if gguf else _vocab_limit(tokenizer, arch.vocab_size),
        folder=folder,
    )


def find_architecture(path: str | Path) -> Architecture:
    """The architecture of a model, whose weights may be absent.

    Args:
        path: as for `load_model`, of which the `config.json` suffices; or the name of a published size or of its hub
            repository, such as `qwen3.5-27b` or `Qwen/Qwen3.5-27B`, for which no file is needed.

    Raises:
        EsoptError: it is none of these, or not supported.

    Example:
        >>> find_architecture("Qwen/Qwen3.5-27B").hidden_size, find_architecture("builtin:sudoku-4x4").hidden_size
        (5120, 48)
    """
    text, name = str(path), published_name(str(path))
    if name is not None and not os.path.exists(Path(path).expanduser()):
        return load_architecture(name)
    if not text.startswith("builtin:") and not os.path.exists(Path(path).expanduser()) and is_hub_id(text):
        return parse_architecture(read_json(hub_config(text)))
    folder = resolve_folder(path)
    return parse_architecture(
        read_gguf(folder).config if folder.suffix == ".gguf" else read_json(folder / "config.json")
    )


def resolve_folder(path: str | Path) -> Path:
    """The folder or GGUF file that `path` names, checked to be one that can hold a model; a hub model is downloaded."""
    text = str(path)
    if text.startswith("builtin:"):
        name = text.removeprefix("builtin:")
        shipped = builtin_names()
        if name not in shipped:
            hint = did_you_mean(name, shipped) if shipped else "none is shipped"
            raise EsoptError(f"there is no built-in model {name!r}; {hint} (shipped: {', '.join(shipped) or 'none'})")
        return BUILTIN / name
    if file := find_gguf(path):
        return file
    folder = Path(path).expanduser()
    if not os.path.exists(folder):  # unlike `Path.exists`, says no to a name that the system refuses
        if isinstance(path, str) and is_hub_id(path):
            folder = hub_folder(path)
        else:
            raise EsoptError(
                f"model folder {text!r} does not exist; give a Hugging Face folder, ORG/NAME@main of the hub or "
                "builtin:NAME"
            )
    if not folder.is_dir():
        raise EsoptError(f"model path {text!r} is a file; give the folder that holds config.json and the weights")
    if not (folder / "config.json").is_file():
        raise EsoptError(f"model folder {text!r} has no config.json; it must hold config.json and weights")
    return folder


def builtin_names() -> list[str]:
    """Names of the models shipped in the package."""
    return sorted(f.parent.name for f in BUILTIN.glob("*/config.json"))


def _eos_ids(config: dict[str, Any], generation_config: Path) -> tuple[int, ...]:
    """The union of all end ids: chat models end a turn with one and a document with another."""
    sources = [config, config.get("text_config") or {}]
    if generation_config.is_file():
        sources.append(read_json(generation_config))
    found: set[int] = set()
    for source in sources:
        ids = source.get("eos_token_id")
        ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
        if any(type(i) is not int for i in ids):
            raise EsoptError(f"eos_token_id is {ids!r} in the files beside {generation_config}; it must be token ids")
        found.update(ids)
    return tuple(sorted(found))


def _vocab_limit(tokenizer: Path | None, vocab_size: int) -> int:
    if tokenizer is None:
        return vocab_size
    from tokenizers import Tokenizer

    try:
        ids = Tokenizer.from_file(str(tokenizer)).get_vocab(with_added_tokens=True).values()
    except Exception as fault:  # the library raises bare Exception
        raise EsoptError(f"{tokenizer} is not a readable tokenizer: {' '.join(str(fault).split())}") from None
    size = 1 + max(ids, default=-1)  # ids may have gaps
    if size > vocab_size:
        raise EsoptError(f"{tokenizer} has {size} tokens but the model only {vocab_size}; they do not belong together")
    return size
