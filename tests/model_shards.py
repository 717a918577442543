"""Model folders in several files, as the hub has them, written with NumPy alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

PREFIX = {"text": "model.", "multimodal": "model.language_model.", "mlx": "language_model.model."}


def spelled(tensors: dict[str, np.ndarray], spelling: str) -> dict[str, np.ndarray]:
    """`tensors` of a text-only file under the names of another kind of file."""
    head = "language_model.lm_head." if spelling == "mlx" else "lm_head."
    return {
        PREFIX[spelling] + n.removeprefix("model.") if n.startswith("model.") else head + n.removeprefix("lm_head."): x
        for n, x in tensors.items()
    }


def other_parts() -> dict[str, np.ndarray]:
    """Tensors that a text decoder leaves on the disk, of types that it does not know."""
    rng = np.random.default_rng(7)
    return {
        "mtp.fc.weight": rng.standard_normal((6, 5)).astype(np.float32),
        "mtp.layers.0.self_attn.q_proj.weight": rng.standard_normal((4, 4)).astype(np.float64),
        "model.visual.blocks.0.attn.qkv.weight": rng.integers(0, 99, (7, 3)),
        "visual.merger.norm.weight": rng.integers(0, 2, 9).astype(np.int8),
    }


def write_shards(folder: Path, tensors: dict[str, np.ndarray], count: int, *, index: bool = True) -> Path:
    """`count` files with a mixture of tensors each, beside what is in `folder` already."""
    from safetensors.numpy import save_file

    for path in folder.glob("model*.safetensors*"):
        path.unlink()
    names = sorted(tensors, key=lambda name: hash_of(name))
    places = {}
    for i in range(count):
        file = f"model-{i + 1:05d}-of-{count:05d}.safetensors"
        mine = names[i::count]
        save_file({name: tensors[name] for name in mine}, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(mine, file)
    if index:
        total = sum(x.nbytes for x in tensors.values())
        tree = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(tree, indent=2) + "\n")
    return folder


def hash_of(name: str) -> int:
    """An order that has nothing to do with the model's."""
    return sum(31**i % 1009 * ord(c) for i, c in enumerate(name)) % 1009


def file_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
