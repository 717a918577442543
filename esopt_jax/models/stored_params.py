"""The leaves of a model, each read from the disk whenever it is asked for, straight to the devices that hold it.

A model of 27 billion weights in bfloat16 is 54 GB: what needs its leaves one after another never holds two copies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from esopt_jax.errors import EsoptError
from esopt_jax.models.layout import by_tensor, leaf_view, place_leaves, tensor_shape
from esopt_jax.models.sharding import leaf_sharding
from esopt_jax.models.tensor_files import DTYPES, StoredTensor, Weights, listed
from esopt_jax.types import LeafSpec, Specs

HEAD = "lm_head.weight"
_OTHER_PARTS = re.compile(r"(mtp|visual|model\.visual)\.|.*\.rotary_emb\.inv_freq$")
"""Tensors that a text decoder does not read: vision tower, multi-token head, tables that follow from the config."""
_ROWS = 256
"""Rows of a tensor that are transposed at once: a block stays in the caches, three times as fast as all together."""


def text_name(name: str) -> str | None:
    """The name that a tensor of a file has in a text-only file; None for what a text decoder does not read.

    Example:
        >>> [text_name(f"{prefix}norm.weight") for prefix in ("model.language_model.", "language_model.model.")]
        ['model.norm.weight', 'model.norm.weight']
        >>> text_name("language_model.lm_head.weight"), text_name("mtp.norm.weight")
        ('lm_head.weight', None)
    """
    if _OTHER_PARTS.match(name):
        return None
    if name.startswith("language_model."):
        return name.removeprefix("language_model.")
    return re.sub(r"^model\.language_model\.", "model.", name)


def match_tensors(weights: Weights, specs: Specs, *, tied: bool) -> dict[str, StoredTensor]:
    """The tensors that the leaves of `specs` are made of, by their names in a text-only file.

    Args:
        weights: of a folder.
        specs: the leaf table.
        tied: whether the head is the embedding; a head in the files is then ignored.

    Raises:
        EsoptError: naming what is missing, unexpected, of another shape or type.
    """
    wanted = by_tensor(specs)
    found: dict[str, StoredTensor] = {}
    unexpected, shapes, types = [], [], []
    for stored_name, tensor in weights.tensors.items():
        name = text_name(stored_name)
        if name is None or (tied and name == HEAD):
            continue
        if name not in wanted or name in found:
            unexpected.append(f"unexpected {stored_name}")
            continue
        found[name] = tensor
        if tensor.shape != (shape := tensor_shape(wanted[name])):
            shapes.append(f"{stored_name} is {list(tensor.shape)} instead of {list(shape)}")
        elif tensor.dtype not in DTYPES:
            types.append(f"{stored_name} is {tensor.dtype}; it must be {', '.join(DTYPES)}")
    missing = [f"missing {name}" for name in wanted if name not in found]
    if any(problems := [missing, unexpected, shapes, types]):
        text = "; ".join(listed(each, 8, "; ") for each in problems if each)
        raise EsoptError(f"the weights do not match config.json: {text}")
    return found


class StoredParams(Mapping[str, jax.Array]):
    """Canonical leaf path -> array, read anew at each access; keep what you need again."""

    def __init__(
        self, specs: Specs, tensors: Mapping[str, StoredTensor], *, mesh: Mesh | None = None, dtype: Any = jnp.float32
    ) -> None:
        """Leaves of `tensors`; nothing is read yet.

        Args:
            specs: the leaf table.
            tensors: as `match_tensors` found them.
            mesh: where the leaves go, by the rules of `sharding`; None for the default device.
            dtype: float32; or None for bfloat16 where the file has bfloat16, else float32.

        Raises:
            EsoptError: the model does not divide over the mesh.
        """
        self._leaves: dict[str, tuple[LeafSpec, StoredTensor, slice]] = {
            spec.path: (spec, tensors[name], rows)
            for name, parts in by_tensor(specs).items()
            for spec, rows in place_leaves(parts)
        }
        self._homes = {spec.path: None if mesh is None else leaf_sharding(spec, mesh) for spec in specs}
        self._dtype = dtype

    def __getitem__(self, path: str) -> jax.Array:
        spec, tensor, rows = self._leaves[path]
        dtype = self._dtype
        if dtype is None:
            dtype = jnp.bfloat16 if tensor.dtype == "BF16" else jnp.float32
        read = _reader(leaf_view(tensor.array()[rows], spec), spec, np.dtype(dtype))
        home = self._homes[path]
        if home is None:
            leaf = jax.device_put(read((slice(None),) * len(spec.shape)))  # `jnp.asarray` copies once more
        else:
            leaf = jax.make_array_from_callback(spec.shape, home, read)
        return jax.block_until_ready(leaf)  # else transfers queue up, each with its copy in host memory

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)


def _reader(view: np.ndarray, spec: LeafSpec, dtype: np.dtype) -> Callable[[tuple[slice, ...]], np.ndarray]:
    """A function from an index to a copy of that part of a leaf; devices that hold the same part share it."""
    first_output = spec.inputs if spec.group == "matrix" else 0
    done: dict[str, np.ndarray] = {}

    def read(index: tuple[slice, ...]) -> np.ndarray:
        if (key := repr(index)) not in done:
            done[key] = _copied(view[index], first_output, dtype)
        return done[key]

    return read


def _copied(part: np.ndarray, axis: int, dtype: np.dtype) -> np.ndarray:
    """A copy of `part`, of which `axis` leads in the file, in C order and of `dtype`."""
    copy = np.empty(part.shape, dtype)
    step = max(1, _ROWS // math.prod(part.shape[axis + 1 :])) if axis else part.shape[0]
    for first in range(0, part.shape[axis], step):
        block = (slice(None),) * axis + (slice(first, first + step),)
        copy[block] = part[block]
    return copy
