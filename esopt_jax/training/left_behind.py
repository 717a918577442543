"""What an earlier process left in a run folder, read and checked as a whole before anything of it is changed."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esopt_jax.config import INCIDENTAL, Config, config_hash, to_dict, to_yaml
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.training.evaluations import Scored, read_evaluations
from esopt_jax.training.generation import scheduled
from esopt_jax.training.history_reader import History, read_history
from esopt_jax.training.jsonl import Lines, read_json, read_lines
from esopt_jax.training.ledger import Earlier
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
    """

    folder: RunFolder
    config: Config
    history: History | None
    metrics: Lines
    scores: Mapping[Scored, tuple[Evaluation, float]]
    scores_file: Lines
    summary: Mapping[str, Any]

    @property
    def generations(self) -> set[int]:
        """Those that have their row of metrics."""
        return {row["generation"] for row in self.metrics.rows if "fitness/mean" in row}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do under its own config."""
        done = 0 if self.history is None else len(self.history.digests)
        return self.summary.get("status") == "finished" and done == self.config.es.generations

    def totals(self, history: History) -> Totals:
        """What the processes before this one did, by their rows of metrics."""
        totals = Totals(history.header.base_digest)
        for row in self.metrics.rows:
            if "fitness/mean" in row:
                totals = totals.after(row, history.digests[row["generation"]])
        walls = [row["wall_s"] for row in self.metrics.rows]
        compiled = sum(row.get("time/compile_s", 0.0) for row in self.metrics.rows)
        return dataclasses.replace(
            totals,
            earlier_wall_s=max([self.summary.get("wall_s", 0.0), *walls]),
            earlier_compile_s=max(self.summary.get("compile_s", 0.0), compiled),
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
        )


def read_left_behind(folder: RunFolder) -> LeftBehind:
    """Read and check it.

    Raises:
        EsoptError: a file that the run needs is damaged; the message names the line.
    """
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


def expendable(path: Path) -> dict[str, Any]:
    """What a file says that a run can do without; nothing where it is missing or damaged."""
    try:
        return read_json(path) if path.exists() else {}
    except EsoptError as fault:
        log.warning("%s; going on without it", fault)
        return {}


def _check_agreement(folder: RunFolder, history: History, kept: Config, asked: Config) -> None:
    if config_hash(kept) not in history.config_hashes:
        ours, theirs = ({"es": vars(es)} for es in (kept.es, history.header.es))
        keys = [key for key, _, _ in _differences(ours, theirs)] or ["a key outside es"]
        raise EsoptError(
            f"{folder.config} was changed after the run began ({', '.join(keys)}); put it back. If nobody changed it, "
            f"another version of esopt_jax began the run: {folder.env.name} says which"
        )
    done = len(history.records)
    if asked.es.generations < done:
        raise EsoptError(f"es.generations is {asked.es.generations}; the run has {done} already: give at least that")
    for name in ("sigma", "alpha"):
        for generation in range(done):
            before, after = (scheduled(config.es, name, generation) for config in (kept, asked))
            if before != after:
                raise EsoptError(
                    f"es.generations={asked.es.generations} would have given generation {generation} the {name} "
                    f"{after:.6g} instead of {before:.6g}: a {kept.es.generations}-generation schedule cannot be "
                    "extended; start a new run"
                )


def _check_metrics(path: Path, rows: Sequence[Mapping[str, Any]], generations: int) -> None:
    """Refuse rows that no run with such a history wrote."""
    seen: set[int] = set()
    for number, row in enumerate(rows, 1):
        generation, wall_s = row.get("generation"), row.get("wall_s")
        if type(generation) is not int or type(wall_s) is not float or not math.isfinite(wall_s):
            raise EsoptError(f"{path}, line {number} is no row of metrics; delete the line to go on without it")
        if "fitness/mean" in row:
            if not 0 <= generation < generations or generation in seen:
                what = "is there twice" if generation in seen else f"is not among the {generations} of the history"
                raise EsoptError(f"{path}, line {number}: generation {generation} {what}; delete the line to go on")
            seen.add(generation)


def _lines(path: Path) -> Lines:
    return read_lines(path) if path.exists() else Lines([], 0, False)


def _differences(before: Any, after: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Keys at which two nested mappings differ, with both values."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), f"{where}.{key}".lstrip("."))
    elif before != after:
        yield where, before, after
