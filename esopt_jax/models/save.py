"""Write a model as a Hugging Face folder that `transformers` loads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.models.gguf_tokenizer import write_companions
from esopt_jax.models.layout import join_tensors
from esopt_jax.models.load import WEIGHTS, Model
from esopt_jax.types import Params

COPIED = ("*.json", "*.jinja", "*.txt", "*.model")
"""What accompanies the weights: config, generation config, tokenizer, chat template, licence."""


def save_params(folder: str | Path, params: Params, model: Model) -> None:
    """Write `params` into `folder`, with the files that `model` came with; untouched weights come back byte for byte.

    Args:
        folder: created when absent; a model already there is replaced.
        params: float32 leaves by canonical path. Each tensor is rounded to the dtype that it had in the source.
        model: where the weights started from.

    Raises:
        EsoptError: leaves that are missing, unknown or misshapen, or a folder that cannot be written.
    """
    _check(params, model)
    leaves = {spec.path: np.asarray(params[spec.path]).astype(model.dtypes[spec.hf_name]) for spec in model.specs}
    write_folder(folder, join_tensors(leaves, model.specs), source=model.folder)


def write_folder(folder: str | Path, tensors: dict[str, np.ndarray], *, source: Path) -> None:
    """Write `tensors` as the weights of `folder`, beside copies of the other files of `source`."""
    from safetensors.numpy import save_file

    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".gguf":
            write_companions(source, folder)
        for pattern in COPIED:
            for file in source.glob(pattern):
                if not file.name.endswith(".index.json") and file.parent.resolve() != folder.resolve():
                    shutil.copyfile(file, folder / file.name)
        # A reader never sees half a file: the weights appear under their name only when complete.
        partial = folder / f".{WEIGHTS}.partial"
        save_file(tensors, partial, metadata={"format": "pt"})
        partial.chmod(0o644)  # safetensors makes it private to the user
        os.replace(partial, folder / WEIGHTS)
    except OSError as fault:
        raise EsoptError(f"cannot write a model to {str(folder)!r}: {fault.strerror or fault}") from None


def _check(params: Params, model: Model) -> None:
    expected = {spec.path: spec.shape for spec in model.specs}
    found = [f"missing {path}" for path in expected if path not in params]
    found += [f"unknown {path}" for path in params if path not in expected]
    found += [
        f"{path} is {list(params[path].shape)} instead of {list(shape)}"
        for path, shape in expected.items()
        if path in params and tuple(params[path].shape) != shape
    ]
    if found:
        raise EsoptError("these weights cannot be saved: " + "; ".join(found))
