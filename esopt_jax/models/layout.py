"""How a leaf lies inside a tensor of a Hugging Face file, and back, byte for byte.

A projection is `[outputs, inputs]` in the file and `[inputs..., outputs...]` here; a convolution `[channels, 1, taps]`
there and `[taps, heads, width]` here; a fused tensor holds its parts one after another along the first axis.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.types import LeafSpec, Specs

Parts = dict[str, list[LeafSpec]]


def by_tensor(specs: Specs) -> Parts:
    """Tensor name -> its leaves, in the order in which the file holds them."""
    parts: Parts = {}
    for spec in specs:
        parts.setdefault(spec.hf_name, []).append(spec)
    return parts


def tensor_shape(leaves: list[LeafSpec]) -> tuple[int, ...]:
    """Shape of the file's tensor that holds `leaves`."""
    shapes = [_file_shape(spec) for spec in leaves]
    return (sum(s[0] for s in shapes), *shapes[0][1:])


def split_tensors(tensors: Mapping[str, np.ndarray], specs: Specs) -> dict[str, np.ndarray]:
    """Leaves of a file's tensors, in the tensors' own dtype.

    Raises:
        EsoptError: naming every tensor that is missing, unexpected or of another shape.
    """
    parts = by_tensor(specs)
    found = [f"missing {name}" for name in parts if name not in tensors]
    found += [f"unexpected {name}" for name in tensors if name not in parts]
    for name, leaves in parts.items():
        if name in tensors and tuple(tensors[name].shape) != tensor_shape(leaves):
            found.append(f"{name} is {list(tensors[name].shape)} instead of {list(tensor_shape(leaves))}")
    if found:
        raise EsoptError("the weights do not match config.json: " + "; ".join(found))
    leaves_of = {}
    for name, leaves in parts.items():
        stops = np.cumsum([_file_shape(spec)[0] for spec in leaves])[:-1]
        for spec, piece in zip(leaves, np.split(tensors[name], stops), strict=True):
            leaves_of[spec.path] = _from_file(piece, spec)
    return leaves_of


def join_tensors(leaves: Mapping[str, np.ndarray], specs: Specs) -> dict[str, np.ndarray]:
    """The file's tensors of `leaves`: the inverse of `split_tensors`."""
    return {
        name: np.ascontiguousarray(np.concatenate([_to_file(leaves[spec.path], spec) for spec in parts]))
        for name, parts in by_tensor(specs).items()
    }


def _file_shape(spec: LeafSpec) -> tuple[int, ...]:
    rows, columns = spec.noise_form
    if spec.group == "conv":
        return (columns, 1, rows)
    return (columns, rows) if spec.group == "matrix" else spec.shape


def _from_file(tensor: np.ndarray, spec: LeafSpec) -> np.ndarray:
    if spec.group not in ("matrix", "conv"):
        return tensor
    return np.ascontiguousarray(tensor.reshape(tensor.shape[0], -1).T).reshape(spec.shape)


def _to_file(leaf: np.ndarray, spec: LeafSpec) -> np.ndarray:
    if spec.group not in ("matrix", "conv"):
        return leaf
    return leaf.reshape(spec.noise_form).T.reshape(_file_shape(spec))
