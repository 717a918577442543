"""Read a model from a Hugging Face folder, or one shipped in the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.models.architecture import Architecture, read_json
from esopt_jax.models.gguf_file import find_gguf, read_gguf
from esopt_jax.models.layout import split_tensors
from esopt_jax.models.registry import leaf_specs, parse_architecture
from esopt_jax.types import Params, Specs

BUILTIN = Path(__file__).parent / "builtin"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Model:
    """A loaded model.

    Attributes:
        arch: its architecture.
        specs: its table of leaves.
        params: float32 weights by canonical leaf path.
        dtypes: tensor name -> dtype in the file, so that a saved model has the types it came with.
        tokenizer_path: the `tokenizer.json` beside it, or None.
        eos_ids: every token id that ends a turn, sorted; the union over the folder's files.
        vocab_limit: ids from here on are padding of the vocabulary and must not be sampled.
        folder: where it was read from; of a GGUF model, its file.
    """

    arch: Architecture
    specs: Specs
    params: Params
    dtypes: dict[str, np.dtype]
    tokenizer_path: Path | None
    eos_ids: tuple[int, ...]
    vocab_limit: int
    folder: Path


def load_model(path: str | Path) -> Model:
    """The model in a folder with `config.json` and `model.safetensors`, in a GGUF file, or shipped as `builtin:NAME`.

    Raises:
        EsoptError: in one line, for a folder that is absent or incomplete and for weights that do not fit its config.

    Example:
        >>> model = load_model("builtin:sudoku-4x4")
        >>> len(model.specs) == len(model.params), model.folder.name
        (True, 'sudoku-4x4')
    """
    folder = resolve_folder(path)
    gguf = read_gguf(folder) if folder.suffix == ".gguf" else None
    config = gguf.config if gguf else read_json(folder / "config.json")
    arch = parse_architecture(config)
    specs = leaf_specs(arch)
    tensors = {n: t.array() for n, t in gguf.tensors.items()} if gguf else _read_tensors(folder / WEIGHTS)
    if arch.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)  # some exports repeat the tied table
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    params = {path: jnp.asarray(leaf, jnp.float32) for path, leaf in split_tensors(tensors, specs).items()}
    tokenizer = folder / "tokenizer.json"
    tokenizer = tokenizer if tokenizer.is_file() else None
    return Model(
        arch=arch,
        specs=specs,
        params=params,
        dtypes=dtypes,
        tokenizer_path=tokenizer,
        eos_ids=_eos_ids(config, folder / "generation_config.json"),
        vocab_limit=gguf.vocab_limit if gguf else _vocab_limit(tokenizer, arch.vocab_size),
        folder=folder,
    )


def resolve_folder(path: str | Path) -> Path:
    """The folder or GGUF file that `path` names, checked to be one that can hold a model."""
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
    if not folder.exists():
        raise EsoptError(f"model folder {text!r} does not exist; give a Hugging Face folder or builtin:NAME")
    if not folder.is_dir():
        raise EsoptError(f"model path {text!r} is a file; give the folder that holds config.json and {WEIGHTS}")
    for name in ("config.json", WEIGHTS):
        if not (folder / name).is_file():
            raise EsoptError(f"model folder {text!r} has no {name}; it must hold config.json and {WEIGHTS}")
    return folder


def builtin_names() -> list[str]:
    """Names of the models shipped in the package."""
    return sorted(f.parent.name for f in BUILTIN.glob("*/config.json"))


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (the file is not a mapping)
    except (SafetensorError, OSError) as fault:
        raise EsoptError(f"{path} is not a readable safetensors file: {' '.join(str(fault).split())}") from None


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
        size = Tokenizer.from_file(str(tokenizer)).get_vocab_size(with_added_tokens=True)
    except Exception as fault:  # the library raises bare Exception
        raise EsoptError(f"{tokenizer} is not a readable tokenizer: {' '.join(str(fault).split())}") from None
    if size > vocab_size:
        raise EsoptError(f"{tokenizer} has {size} tokens but the model only {vocab_size}; they do not belong together")
    return size
