"""A run on disk, for notebooks and scripts: what it did, and its weights after any generation."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esopt_jax.config import Config
from esopt_jax.config_reader import load_config
from esopt_jax.core.fingerprint import fingerprint
from esopt_jax.core.master import master_value
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import Model
from esopt_jax.models.sharding import mesh_here
from esopt_jax.rollouts.trajectory import read_trajectories
from esopt_jax.training.history_reader import History, check_config
from esopt_jax.training.jsonl import read, read_json
from esopt_jax.training.numerics import use_numerics
from esopt_jax.training.replay import Replay, known_history, replay_run
from esopt_jax.training.restore import Restored, base_model, restore
from esopt_jax.training.run_folder import RunFolder, open_run_folder
from esopt_jax.types import Params, Trajectory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run folder. Everything is read when asked for, so a run that still goes on can be looked at too.

    Example:
        >>> import tempfile
        >>> from esopt_jax import load_config, train
        >>> config = load_config("smoke", ["es.generations=2", "eval.episodes=4", "log.progress=none"])
        >>> run = Run.load(train(config, tempfile.mkdtemp()).folder)
        >>> [row["fitness/mean"] for row in run.metrics() if "fitness/mean" in row] == [
        ...     float(record.fitness.mean()) for record in run.history().records
        ... ]
        True
        >>> run.replay().verdict
        'equal'
        >>> {episode.generation for episode in run.episodes()}
        {1}
        >>> sum(leaf.size for leaf in run.params(1).values()) > 80_000
        True
    """

    folder: Path

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """The run in a folder.

        Raises:
            EsoptError: there is none.
        """
        return cls(open_run_folder(Path(path)).path)

    @property
    def config(self) -> Config:
        """Its resolved config."""
        return load_config(self._files.config)

    @property
    def summary(self) -> dict[str, Any]:
        """What its `summary.json` says: see `training.summary` for the keys."""
        return read_json(self._files.summary)

    def history(self) -> History:
        """Coefficients, fitness and digests of all generations so far."""
        return known_history(self._files.history)

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of `metrics.jsonl`: one a generation and one an evaluation; `training.metrics` names their keys."""
        return read(self._files.metrics)

    def evaluations(self) -> list[dict[str, Any]]:
        """Rows of `evaluations.jsonl`: every held-out score, task by task."""
        return read(self._files.evaluations)

    def episodes(self, generation: int | None = None, *, held_out: bool = False) -> Iterator[Trajectory]:
        """Recorded episodes.

        Args:
            generation: of the population, from 0; with `held_out`, of the weights after so many updates. By default
                the last one.
            held_out: the episodes of an evaluation instead of the population's.

        Raises:
            EsoptError: none are recorded there; the message names what is.
        """
        kind = "eval" if held_out else "gen"
        recorded = sorted(int(p.name[len(kind) + 1 :].split(".")[0]) for p in self._recorded(kind))
        if not recorded:
            raise EsoptError(f"the run in {str(self.folder)!r} has no {kind} episodes; log.trajectories decides")
        generation = recorded[-1] if generation is None else generation
        if generation not in recorded:
            text = ", ".join(map(str, recorded))
            raise EsoptError(f"the run in {str(self.folder)!r} has no {kind} episodes of {generation}; it has {text}")
        path = self._files.held_out(generation) if held_out else self._files.trajectories(generation)
        return read_trajectories(path)

    def params(self, generation: int | None = None, *, base: str | Path | None = None) -> Params:
        """Float32 weights by leaf path after so many updates; by default after all so far.

        Low-rank adapters are leaves of their own, beside the matrices that they belong to (`models.lora`).

        Args:
            generation: 0 for the base.
            base: where the base model is, if it has moved.

        Raises:
            EsoptError: no such generation, or the base or the history is not what it was.
        """
        restored, _ = self.restore(generation, base=base)
        return {path: master_value(leaf) for path, leaf in restored.master.items()}

    def replay(self, generation: int | None = None, *, base: str | Path | None = None) -> Replay:
        """Rebuild the weights from base and history alone and compare: see `training.replay`; of evolution only."""
        return replay_run(self.folder, generation=generation, base=base)

    def restore(
        self,
        generation: int | None = None,
        *,
        base: str | Path | None = None,
        mesh: tuple[int, int] | None = None,
    ) -> tuple[Restored, Model]:
        """The weights after so many updates in the run's master format, and the base model, without its own weights.

        They come on `mesh`, by default the run's own, or on one device where there are too few. On another platform
        they may be equal to tolerance only, which is logged.
        """
        config = self.config
        if config.method == "grpo":
            from esopt_jax.training.baselines.grpo_files import restore_run

            return restore_run(self._files, config, updates=generation, base=base)
        history = self.history()
        check_config(history, config, self._files.config)
        use_numerics(config)
        mesh = mesh_here(config.train.mesh) if mesh is None else mesh
        model = base_model(config.model.path if base is None else base, history.header.es, mesh)
        restored = restore(
            history,
            model,
            updates=len(history.records) if generation is None else generation,
            fingerprint=fingerprint(),
            mesh=mesh,
            checkpoints=self._files.checkpoints,
        )
        if not restored.exact:
            log.warning("these weights were computed on another platform: equal to the run's to tolerance only")
        return restored, dataclasses.replace(model, params={})

    @property
    def _files(self) -> RunFolder:
        return RunFolder(self.folder)

    def _recorded(self, kind: str) -> list[Path]:
        return list(self._files.trajectories(0).parent.glob(f"{kind}_*.jsonl.gz"))
