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


def place_leaves(leaves: list[LeafSpec]) -> list[tuple[LeafSpec, slice]]:
    """The leaves of one tensor with the rows of it that each one is."""
    stops = np.cumsum([_file_shape(spec)[0] for spec in leaves]).tolist()
    return [(spec, slice(stop - _file_shape(spec)[0], stop)) for spec, stop in zip(leaves, stops, strict=True)]


def leaf_view(rows: np.ndarray, spec: LeafSpec) -> np.ndarray:
    """A leaf in its own shape, out of its rows of a file's tensor. A view: nothing is copied."""
    if spec.group not in ("matrix", "conv"):
        return rows
    split = spec.inputs or 1  # the taps of a convolution lead, as the inputs of a projection do
    inputs, outputs = spec.shape[:split], spec.shape[split:]
    axes = (*range(len(outputs), len(spec.shape)), *range(len(outputs)))
    return rows.reshape(*outputs, *inputs).transpose(axes)


def tensor_rows(leaf: np.ndarray, spec: LeafSpec) -> np.ndarray:
    """The rows of a file's tensor that hold a leaf: the inverse of `leaf_view`, contiguous."""
    if spec.group in ("matrix", "conv"):
        leaf = leaf.reshape(spec.noise_form).T.reshape(_file_shape(spec))
    return np.ascontiguousarray(leaf)


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
    return {
        spec.path: np.ascontiguousarray(leaf_view(tensors[name][rows], spec))
        for name, leaves in parts.items()
        for spec, rows in place_leaves(leaves)
    }


def join_tensors(leaves: Mapping[str, np.ndarray], specs: Specs) -> dict[str, np.ndarray]:
    """The file's tensors of `leaves`: the inverse of `split_tensors`."""
    return {
        name: np.concatenate([tensor_rows(leaves[spec.path], spec) for spec in parts])
        for name, parts in by_tensor(specs).items()
    }


def _file_shape(spec: LeafSpec) -> tuple[int, ...]:
    rows, columns = spec.noise_form
    if spec.group == "conv":
        return (columns, 1, rows)
    return (columns, rows) if spec.group == "matrix" else spec.shape
