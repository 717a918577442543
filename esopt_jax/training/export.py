"""`esopt export`: the weights of a run as a Hugging Face folder, by checkpoint and replay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from esopt_jax.models.save import check_new_folder, save_params
from esopt_jax.training.run import Run


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        folder: where.
        updates: how many generations lie behind the weights.
        digest: of the weights in the master format of the run, before they were rounded to the types of the base.
        exact: whether every digest that the history knows was met; False on another platform than the run's.
        base: the folder that everything else was copied from.
    """

    folder: Path
    updates: int
    digest: str
    exact: bool
    base: Path


def export_run(
    run_dir: str | Path, out: str | Path, *, generation: int | None = None, base: str | Path | None = None
) -> Export:
    """Write the weights of a run as a model folder.

    Args:
        run_dir: the folder of the run, which may still go on.
        out: a new or empty folder.
        generation: how many updates to apply; by default all so far.
        base: where the base model is, if it has moved.

    Raises:
        EsoptError: no such run or generation, the base or the history is not what it was, or `out` cannot be used.
    """
    run, out = Run.load(run_dir), Path(out)
    check_new_folder(out)
    restored, model = run.restore(generation, base=base)
    save_params(out, restored.master, model)
    return Export(out, restored.updates, restored.digest, restored.exact, model.folder)
