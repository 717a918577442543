"""What all pictures share: size, colours, axes, and how they get onto the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError

COLOURS = ("#4477aa", "#cc3311", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#ee8866", "#777777")
"""Told apart by readers with any colour vision; groups take them in turn."""

FORMATS = (".png", ".svg", ".pdf")


def new_figure(*, width: float = 7.2) -> Any:
    """An empty figure of `width` inches."""
    from matplotlib.figure import Figure  # draws with Agg; pyplot would keep global state and pick a window system

    return Figure(figsize=(width, 4.2), dpi=120, layout="constrained")


def finish_axes(axes: Any, ylabel: str) -> None:
    """Generations along the bottom, and a grid."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="generation", ylabel=ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)


def check_picture(path: Path) -> None:
    """Refuse a file that no picture can be written to.

    Raises:
        EsoptError: its ending is none of `FORMATS`, or its folder does not exist.
    """
    if path.suffix.lower() not in FORMATS:
        raise EsoptError(f"--out {str(path)!r} ends in {path.suffix!r}; it must end in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise EsoptError(f"--out {str(path)!r} cannot be written: {str(path.parent)!r} is not a folder")


def save_figure(figure: Any, path: Path) -> Path:
    """Write the picture; a reader sees all of it or none.

    Raises:
        EsoptError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    try:
        figure.savefig(partial, format=path.suffix[1:].lower())
        os.replace(partial, path)
    except OSError as fault:
        raise EsoptError(f"cannot write the picture {str(path)!r}: {fault.strerror or fault}") from None
    return path
