"""What an earlier process left in a run folder, read and checked as a whole before anything of it is changed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esopt_jax.config import INCIDENTAL, Config, to_dict, to_yaml
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.training.coefficients import scheduled
from esopt_jax.training.evaluations import Scored, read_evaluations
from esopt_jax.training.history_reader import History, check_config, read_history
from esopt_jax.training.jsonl import Lines, expendable, read_lines
from esopt_jax.training.ledger import Earlier
from esopt_jax.training.metrics import check_rows
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.scoring import Evaluation
from esopt_jax.training.summary import Totals

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeftBehind:
    """The files of a run that are needed to go on with it.

    Attributes:
        folder: of the run.
        config: its resolved config.
        history: None of a run that stopped before its first row was whole.
        metrics: rows, each checked.
        scores: held-out scores.
        scores_file: the lines that they are from.
        summary: what it said last; empty if there is none.
        pending: metrics of the generation that was being applied; empty if there is none.
    """

    folder: RunFolder
    config: Config
    history: History | None
    metrics: Lines
    scores: Mapping[Scored, tuple[Evaluation, float]]
    scores_file: Lines
    summary: Mapping[str, Any]
    pending: Mapping[str, Any]

    @property
    def generations(self) -> set[int]:
        """Those that have their row of metrics."""
        return {row["generation"] for row in self.metrics.rows if "fitness/mean" in row}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do under its own config."""
        done = 0 if self.history is None else len(self.history.digests)
        through = self.summary.get("status") == "finished" and done == self.config.es.generations
        return through and self.folder.final.is_dir()

    def totals(self, history: History) -> Totals:
        """What the processes before this one did, by their rows of metrics."""
        totals = Totals(history.header.base_digest)
        for row in self.metrics.rows:
            if "fitness/mean" in row:
                totals = totals.after(row, history.digests[row["generation"]])
        walls = [row.get("wall_s") or 0.0 for row in self.metrics.rows]
        compiled = sum(row.get("time/compile_s") or 0.0 for row in self.metrics.rows)
        said = {name: value for name, value in self.summary.items() if type(value) in (int, float)}
        return dataclasses.replace(
            totals,
            earlier_wall_s=max([said.get("wall_s", 0.0), *walls]),
            earlier_compile_s=max(said.get("compile_s", 0.0), compiled),
            earlier_abandoned=totals.abandoned_workers,
        )

    def earlier(self) -> Earlier:
        """Where the files are to be continued."""
        evaluated = {row["generation"] for row in self.metrics.rows if "eval/solve_rate" in row}
        history = 0 if self.history is None else self.history.size
        return Earlier(
            history=history if self.folder.history.exists() else None,
            metrics=self.metrics.size if self.folder.metrics.exists() else None,
            evaluations=self.scores_file.size if self.folder.evaluations.exists() else None,
            scores=self.scores,
            evaluated=frozenset(evaluated),
            drifted=frozenset(row["generation"] for row in self.metrics.rows if "drift/distance" in row),
        )


def read_left_behind(folder: RunFolder) -> LeftBehind:
    """Read and check it.

    Raises:
        EsoptError: a file that the run needs is damaged; the message names the line.
    """
    _check_kinds(folder)
    config = load_config(folder.config.absolute())
    history = read_history(folder.history) if folder.history.exists() else None
    metrics, scores = _lines(folder.metrics), _lines(folder.evaluations)
    if history is None and metrics.rows:
        raise EsoptError(f"{folder.history} is missing or empty, though {folder.metrics} is not; put it back")
    if history is None and folder.config.read_text(encoding="utf-8") != to_yaml(config):
        raise EsoptError(f"{folder.config} is not whole, and no history says what it was; remove the folder and start")
    if history is not None and history.partial:
        log.warning("%s: the last line was cut short and is left out", folder.history)
    _check_metrics(folder.metrics, metrics.rows, 0 if history is None else len(history.digests))
    return LeftBehind(
        folder=folder,
        config=config,
        history=history,
        metrics=metrics,
        scores=read_evaluations(folder.evaluations, scores.rows),
        scores_file=scores,
        summary=expendable(folder.summary),
        pending=_pending(folder, history, metrics),
    )


def agreed_config(left: LeftBehind, overrides: Sequence[str]) -> Config:
    """The config to go on with: the run's own, with overrides that do not change the results so far.

    Raises:
        EsoptError: they do, the config was edited, or the run is finished.
    """
    kept, asked = left.config, load_config(left.folder.config.absolute(), overrides)
    free = (*INCIDENTAL, "model.path", "es.generations")
    for key, before, after in _differences(to_dict(kept), to_dict(asked)):
        if not any(key == name or key.startswith(name + ".") for name in free):
            raise EsoptError(
                f"--set {key}={after} contradicts the run in {str(left.folder.path)!r}, which has {before!r}; leave it "
                "out, or start a new run"
            )
    if left.history is not None:
        _check_agreement(left.folder, left.history, kept, asked)
    if asked.es.generations == kept.es.generations and left.finished:
        raise EsoptError(
            f"the run in {str(left.folder.path)!r} is finished after {kept.es.generations} generations; to extend it "
            "give --set es.generations=N, which the schedules of sigma and alpha must allow"
        )
    return asked


def _check_agreement(folder: RunFolder, history: History, kept: Config, asked: Config) -> None:
    check_config(history, kept, folder.config)
    done = len(history.records)
    if asked.es.generations < done:
        raise EsoptError(f"es.generations is {asked.es.generations}; the run has {done} already: give at least that")
    for name in ("sigma", "alpha"):
        for generation in range(done):
            before, after = (scheduled(config.es, name, generation) for config in (kept, asked))
            if before != after:
                raise EsoptError(
                    f"es.generations={asked.es.generations} would have given generation {generation + 1} the {name} "
                    f"{after:.6g} instead of {before:.6g}: a {kept.es.generations}-generation schedule cannot be "
                    "extended; start a new run"
                )


def _check_metrics(path: Path, rows: Sequence[Mapping[str, Any]], generations: int) -> None:
    """Refuse rows that no run with such a history wrote."""
    check_rows(path, rows)
    seen: set[int] = set()
    for number, row in enumerate(rows, 1):
        if "fitness/mean" in row:
            generation = row["generation"]
            if generation in seen:
                raise EsoptError(
                    f"{path}, line {number}: generation {generation} is there twice; delete one of the lines"
                )
            if not 0 <= generation < generations:
                raise EsoptError(
                    f"{path} goes on to generation {generation}, but the history beside it knows only {generations}: "
                    f"it has lost lines; put it back, or delete {path.name} to go on from there"
                )
            seen.add(generation)


def _pending(folder: RunFolder, history: History | None, metrics: Lines) -> dict[str, Any]:
    """Metrics of the last generation, if they have not become a row yet."""
    if history is None or not history.records:
        return {}
    last = history.records[-1].generation
    if any(row["generation"] == last for row in metrics.rows if "fitness/mean" in row):
        return {}
    pending = expendable(folder.pending)
    try:
        check_rows(folder.pending, [pending])
    except EsoptError:
        pending = {}
    if pending.get("generation") != last:
        log.warning("%s does not tell the metrics of generation %d: its row lacks its episodes", folder.pending, last)
        return {}
    return pending


def _check_kinds(folder: RunFolder) -> None:
    """Refuse folders where a run has files, and files where it has folders."""
    files = folder.history, folder.metrics, folder.evaluations, folder.summary, folder.pending, folder.env
    folders = folder.checkpoints, folder.final, folder.trajectories(0).parent
    for path in (*files, *(path.with_name(path.name + ".partial") for path in files)):
        if path.exists() and not path.is_file():
            raise EsoptError(f"{path} cannot be read: it is a folder where a run has a file; remove it")
    checkpoints = folder.checkpoints.glob("after_*") if folder.checkpoints.is_dir() else ()
    for path in (*folders, *checkpoints):
        if path.exists() and not path.is_dir():
            raise EsoptError(f"{path} is a file where a run has a folder; remove it")


def _lines(path: Path) -> Lines:
    return read_lines(path) if path.exists() else Lines([], 0, False)


def _differences(before: Any, after: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Keys at which two nested mappings differ, with both values."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), f"{where}.{key}".lstrip("."))
    elif before != after:
        yield where, before, after
