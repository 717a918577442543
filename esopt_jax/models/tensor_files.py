"""Tensors in the safetensors files of a folder: which there are and where their bytes lie, read when asked for.

Opening a folder reads headers only. The library checks each file against its header; the bytes are mapped here, since
it neither tells where they lie nor reads a transposed part of a tensor.
"""

from __future__ import annotations

import json
import mmap
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import jax.numpy as jnp
import numpy as np

from esopt_jax.errors import EsoptError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = {"F32": np.dtype(np.float32), "BF16": np.dtype(jnp.bfloat16), "F16": np.dtype(np.float16)}
"""What weights may be stored as; float32 holds each of them exactly."""

_CHUNK = 1 << 24


@dataclass(frozen=True)
class StoredTensor:
    """A tensor on the disk.

    Attributes:
        file: where it is.
        dtype: name of its type in the file, such as `BF16`.
        shape: as the file has it.
        begin: its first byte in the file.
        size: its bytes.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int

    def array(self) -> np.ndarray:
        """Its values, read-only and mapped: what is not looked at is not read."""
        start = self.begin - self.begin % mmap.ALLOCATIONGRANULARITY
        try:
            with self.file.open("rb") as stream:
                length = self.begin + self.size - start
                mapped = mmap.mmap(stream.fileno(), length, offset=start, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as fault:  # ValueError: the file is shorter than it was
            raise EsoptError(f"{self.file} cannot be read any more: {fault}") from None
        return np.frombuffer(mapped, DTYPES[self.dtype], offset=self.begin - start).reshape(self.shape)

    def copy_to(self, stream: BinaryIO) -> None:
        """Write its bytes to `stream`, a bounded number at once."""
        with self.file.open("rb") as source:
            source.seek(self.begin)
            left = self.size
            while left:
                chunk = source.read(min(left, _CHUNK))
                if not chunk:
                    raise EsoptError(f"{self.file} is shorter than it was when it was opened")
                stream.write(chunk)
                left -= len(chunk)


@dataclass(frozen=True)
class TensorFile:
    """A safetensors file.

    Attributes:
        path: where it is.
        head: its bytes before the first tensor.
        tensors: name -> tensor, in the order of their bytes.
    """

    path: Path
    head: bytes
    tensors: dict[str, StoredTensor]


@dataclass(frozen=True)
class Weights:
    """All tensors of a folder, none of them read.

    Attributes:
        files: in the order of their names.
        index: the file that says which tensor is where; None where there is none.
    """

    files: tuple[TensorFile, ...]
    index: Path | None

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """Tensors by their names in the files."""
        return {name: tensor for file in self.files for name, tensor in file.tensors.items()}


def open_weights(folder: Path) -> Weights:
    """The weights in `folder`: one `model.safetensors`, or shards with or without their index.

    As in `transformers`, a single file wins over an index beside it.

    Raises:
        EsoptError: in one line: no weights, a shard or a named tensor is missing, a file is damaged.
    """
    if (folder / WEIGHTS).is_file():
        return Weights((open_tensor_file(folder / WEIGHTS),), None)
    index = folder / INDEX
    places = _read_index(index) if index.is_file() else None
    names = _shards(folder) if places is None else sorted(set(places.values()))
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise EsoptError(
            f"model folder {str(folder)!r} lacks {listed(missing)}, of {len(names)} weight files; download it again"
        )
    files = tuple(open_tensor_file(folder / name) for name in names)
    _check_places(files, places, index)
    return Weights(files, None if places is None else index)


def open_tensor_file(path: Path) -> TensorFile:
    """The header of a safetensors file.

    Raises:
        EsoptError: it is damaged or cut short.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):  # its header is sound and accounts for every byte of the file
            pass
        with path.open("rb") as stream:
            head = stream.read(8)
            head += stream.read(int.from_bytes(head, "little"))
        entries: dict[str, Any] = json.loads(head[8:])
        entries.pop("__metadata__", None)
        tensors = {name: _stored(path, len(head), entry) for name, entry in entries.items()}
    except (SafetensorError, OSError, ValueError) as fault:
        raise EsoptError(f"{path} is not a readable safetensors file: {' '.join(str(fault).split())}") from None
    ordered = sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].size))
    return TensorFile(path, head, dict(ordered))


def listed(items: list[str], most: int = 5, between: str = ", ") -> str:
    """At most `most` of `items`, and how many more there are.

    Example:
        >>> listed(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return between.join(items[:most]) + more


def _stored(path: Path, start: int, entry: Any) -> StoredTensor:
    begin, end = entry["data_offsets"]
    return StoredTensor(path, entry["dtype"], tuple(entry["shape"]), start + begin, end - begin)


def _read_index(path: Path) -> dict[str, str]:
    """Tensor name -> file name."""
    try:
        places = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as fault:
        raise EsoptError(f"{path} holds no weight_map: {' '.join(str(fault).split())}") from None
    if not isinstance(places, dict) or not places:
        raise EsoptError(f"{path}: weight_map must say for every tensor in which file it is")
    wrong = [str(name) for name in places.values() if not isinstance(name, str) or not _is_weight_file(name)]
    if wrong:
        raise EsoptError(f"{path} names {listed(sorted(set(wrong)))}; files must be *.safetensors beside it")
    return places


def _is_weight_file(name: str) -> bool:
    return Path(name).name == name and name.endswith(".safetensors") and "\0" not in name


def _shards(folder: Path) -> list[str]:
    """Names of the shards of a folder without index, those that are missing included."""
    present = sorted(path.name for path in folder.glob("*.safetensors"))
    found = {(m[1], m[2]) for n in present if (m := re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.safetensors", n))}
    if len(found) != 1:
        hint = f"; it holds {listed(present)}" if present else ""
        hint += "; other formats than safetensors are not read" if list(folder.glob("*.bin")) else ""
        raise EsoptError(
            f"model folder {str(folder)!r} has no {WEIGHTS} and no {INDEX}{hint}; it must hold config.json and weights"
        )
    ((stem, total),) = found
    expected = int(total)
    if not 1 <= expected <= 10 * len(present):
        raise EsoptError(
            f"model folder {str(folder)!r} has {len(present)} of {expected} weight files; download it again"
        )
    return [f"{stem}-{i:05d}-of-{total}.safetensors" for i in range(1, expected + 1)]


def _check_places(files: tuple[TensorFile, ...], places: dict[str, str] | None, index: Path) -> None:
    """Refuse shards in which a tensor is missing, is there twice or is not where the index says."""
    found: dict[str, list[str]] = {}
    for file in files:
        for name in file.tensors:
            found.setdefault(name, []).append(file.path.name)
    twice = [name for name, where in found.items() if len(where) > 1]
    if twice:
        raise EsoptError(f"the weight files in {str(index.parent)!r} hold twice: {listed(twice)}; keep one of each")
    if places is not None and (wrong := [name for name in places if found.get(name) != [places[name]]]):
        raise EsoptError(f"{index} does not fit its files, which do not hold where it says: {listed(wrong)}")
