"""Write a model as a Hugging Face folder that `transformers` loads, file for file like the one it came from.

Every weight file is written anew under the head of its original: the same tensors in the same order, of the same types.
Those of the text decoder hold the new weights; all others (vision tower, multi-token head) are copied byte for byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Container, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from esopt_jax.core.rounding import leaf_shape
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.models.gguf_tokenizer import write_companions
from esopt_jax.models.layout import by_tensor, tensor_rows, tensor_shape
from esopt_jax.models.load import Model
from esopt_jax.models.lora import base_specs, merged_leaf
from esopt_jax.models.stored_params import HEAD, match_tensors, text_name
from esopt_jax.models.tensor_files import DTYPES, INDEX, WEIGHTS, StoredTensor, TensorFile, listed, open_weights
from esopt_jax.types import Master, Params, Specs

COPIED = ("*.json", "*.jinja", "*.txt", "*.model")
"""What accompanies the weights: config, generation config, tokenizer, chat template, licence."""

_TABLE = "model.embed_tokens.weight"
_SPARE = 1_000_000
"""Bytes that a folder may need beside its weights."""


def save_params(folder: str | Path, params: Params | Master, model: Model, *, replace: bool = False) -> None:
    """Write `params` into `folder`, with the files that `model` came with; untouched weights come back byte for byte.

    Beyond `params` no more than one leaf is in memory.

    Args:
        folder: new or empty.
        params: leaves by canonical path, float32 or as a master. Each tensor is rounded to the dtype that it had in the
            source, and is float32 where that was a GGUF file; adapters are merged into their matrices before.
        model: where the weights started from; its folder is read again.
        replace: whether a model already in `folder` may be replaced.

    Raises:
        EsoptError: leaves that are missing, unknown or misshapen, a folder that is not empty, or a source that is gone.
        StoppedError: the folder cannot be written.
    """
    folder = Path(folder)
    if not replace:
        check_new_folder(folder)
    _check(params, model)
    tied, specs = model.arch.tie_word_embeddings, base_specs(model.specs)
    if model.folder.suffix == ".gguf":
        size = 4 * sum(spec.size for spec in specs)
        _write(folder, {WEIGHTS: partial(_write_float32, params, specs)}, model.folder, index=None, size=size)
        return
    weights = open_weights(model.folder)
    tensors, parts = match_tensors(weights, specs, tied=tied), by_tensor(specs)

    def fill(name: str, tensor: StoredTensor, stream: BinaryIO) -> None:
        text = text_name(name)
        if tied and text == HEAD:
            same = (tensor.dtype, tensor.shape) == (tensors[_TABLE].dtype, tensors[_TABLE].shape)
            text = _TABLE if same else None  # a file that repeats the tied table repeats the new one
        if text is None:
            tensor.copy_to(stream)
            return
        for spec in parts[text]:
            leaf = np.asarray(merged_leaf(params, spec.path)).astype(DTYPES[tensor.dtype])
            stream.write(tensor_rows(leaf, spec).view(np.uint8).data)

    writers = {file.path.name: _writer(file, fill) for file in weights.files}
    size = sum(file.path.stat().st_size for file in weights.files)
    _write(folder, writers, model.folder, index=weights.index, size=size)


def write_folder(folder: str | Path, tensors: dict[str, np.ndarray], *, source: Path) -> None:
    """Write `tensors` as the weights of `folder`, beside copies of the other files of `source`."""
    from safetensors.numpy import save

    def write(stream: BinaryIO) -> None:
        stream.write(save(tensors, metadata={"format": "pt"}))

    size = sum(tensor.nbytes for tensor in tensors.values())
    _write(Path(folder), {WEIGHTS: write}, source, index=None, size=size)


def _write_float32(params: Params | Master, specs: Specs, stream: BinaryIO) -> None:
    """A whole safetensors file, leaf after leaf, byte for byte what the library writes of all tensors at once."""
    parts = dict(sorted(by_tensor(specs).items()))
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    stop = 0
    for name, leaves in parts.items():
        start, stop = stop, stop + 4 * sum(spec.size for spec in leaves)
        head[name] = {"dtype": "F32", "shape": tensor_shape(leaves), "data_offsets": [start, stop]}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for leaves in parts.values():
        for spec in leaves:
            stream.write(tensor_rows(np.asarray(merged_leaf(params, spec.path), np.float32), spec).view(np.uint8).data)


def check_new_folder(folder: Path) -> None:
    """Refuse a folder that already holds something.

    Raises:
        EsoptError: it does, or is no folder.
    """
    try:
        taken = any(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as fault:
        raise EsoptError(f"cannot write a model to {str(folder)!r}: {fault.strerror}") from None
    if taken:
        raise EsoptError(f"folder {str(folder)!r} is not empty; give a new one")


def _writer(file: TensorFile, fill: Callable[[str, StoredTensor, BinaryIO], None]) -> Callable[[BinaryIO], None]:
    def write(stream: BinaryIO) -> None:
        stream.write(file.head)
        for name, tensor in file.tensors.items():
            fill(name, tensor, stream)

    return write


def _write(
    folder: Path, writers: Mapping[str, Callable[[BinaryIO], None]], source: Path, *, index: Path | None, size: int
) -> None:
    """Write the weight files and copy what accompanies them. Weights appear under their names when all are complete."""
    partial = {name: folder / f".{name}.partial" for name in writers}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(folder).free) < (needed := size + _SPARE):
            raise OSError(f"the disk is full: it needs {needed / 1e9:.3g} GB, {free / 1e9:.3g} GB are free")
        for name, write in writers.items():
            with partial[name].open("wb") as stream:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
        if source.suffix == ".gguf":
            write_companions(source, folder)
        for pattern in COPIED:
            for file in source.glob(pattern):
                if not file.name.endswith(".index.json") and source.resolve() != folder.resolve():
                    shutil.copyfile(file, folder / file.name)
        for name, path in partial.items():
            os.replace(path, folder / name)
        if source.resolve() != folder.resolve():
            _place_index(folder, writers, index)
    except OSError as fault:
        where = f" ({fault.filename})" if fault.filename else ""
        raise StoppedError(f"cannot write a model to {str(folder)!r}: {fault.strerror or fault}{where}") from None
    finally:
        with contextlib.suppress(OSError):
            for path in partial.values():
                path.unlink(missing_ok=True)


def _place_index(folder: Path, names: Container[str], index: Path | None) -> None:
    """Make the new weight files the only ones."""
    for path in folder.glob("*.safetensors"):
        if path.name not in names:
            path.unlink()
    if index is None:
        (folder / INDEX).unlink(missing_ok=True)
    else:
        shutil.copyfile(index, folder / INDEX)


def _check(params: Mapping[str, Any], model: Model) -> None:
    expected = {spec.path: spec.shape for spec in model.specs}
    found = [f"missing {path}" for path in expected if path not in params]
    found += [f"unknown {path}" for path in params if path not in expected]
    found += [
        f"{path} is {list(leaf_shape(params[path]))} instead of {list(shape)}"
        for path, shape in expected.items()
        if path in params and leaf_shape(params[path]) != shape
    ]
    if found:
        raise EsoptError(f"these weights cannot be saved: {listed(found, 8, '; ')}")
