"""A search under way: its folder, its open files and where it stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from esopt_jax.config import Config, ESConfig, ModelConfig
from esopt_jax.errors import EsoptError
from esopt_jax.search.config import AhdConfig, to_yaml
from esopt_jax.search.learning import Evolver, Lessons, finished_batches
from esopt_jax.search.program import Program
from esopt_jax.search.prompts import Brief
from esopt_jax.search.report import Report, progress
from esopt_jax.search.run_files import Recorded, SearchFolder, curve_csv, population_rows, read_recorded, write_best
from esopt_jax.search.scorer import Scorer
from esopt_jax.search.state import SearchState, replay
from esopt_jax.search.writer import Reply, Writer
from esopt_jax.training.jsonl import JsonlWriter, encode, write_json, write_text
from esopt_jax.training.lock import run_lock
from esopt_jax.training.platform_record import platform_record
from esopt_jax.training.run_folder import check_run_dir
from esopt_jax.training.signals import StopRequest
from esopt_jax.training.stopping import stops

Moment = Literal["answered", "saved", "recorded", "learnt"]
"""Where a search passes: answers have come, are on the disk, a program is on the disk, a batch is over."""
At = Callable[[Moment], None]


@dataclass
class Session:
    """A search under way: what it is made of, and its open files."""

    config: AhdConfig
    brief: Brief
    scorer: Scorer
    writer: Writer
    folder: SearchFolder
    programs: JsonlWriter
    answers: JsonlWriter
    lessons: Lessons | None
    recorded: list[Program]
    replies: dict[int, Reply]
    state: SearchState
    here: Sequence[Program]
    report: Report
    stop: StopRequest
    held: Callable[[], None]
    at: At
    started: float

    def passing(self, moment: Moment) -> None:
        """Say where the search is; stops it if a signal asked for that, or its lock is gone."""
        self.stop.check()
        self.held()
        self.at(moment)


@contextmanager
def open_session(
    config: AhdConfig,
    path: Path,
    *,
    brief: Brief,
    scorer: Scorer,
    writer: Writer,
    evolver: Evolver | None,
    resume: bool,
    at: At,
) -> Iterator[Session]:
    """The session of a new search, or of one that goes on; its lock is held within the block.

    Raises:
        EsoptError: the folder cannot be used, or does not hold what its config asks for.
    """
    folder, started = SearchFolder(path), time.perf_counter()
    if config.es.enabled != (evolver is not None):
        raise EsoptError(f"es.enabled is {config.es.enabled}; an evolver is given if and only if it is true")
    if resume:
        if not folder.config.is_file():
            raise EsoptError(f"{str(path)!r} holds no search: it has no {folder.config.name}")
    else:
        check_run_dir(path)
        path.mkdir(parents=True, exist_ok=True)
    with stops() as stop, ExitStack() as stack:
        held = stack.enter_context(run_lock(folder.lock))
        if not resume:
            check_run_dir(path)  # again, now that nobody else can take it
            write_text(folder.config, to_yaml(config))
            write_json(folder.env, _platform(config))
        recorded = read_recorded(folder) if resume else Recorded()
        replayed = list(replay(config.search, recorded.programs, direction=scorer.direction, es=config.es))
        state, here = replayed[-1]
        lessons = None
        if evolver is not None:
            at_hand = (evolver, config.search, config.es, scorer.direction)
            lessons = stack.enter_context(Lessons(folder.updates, *at_hand))
            for before, programs in finished_batches(iter(replayed)):
                lessons.learn(before, programs)
        report = stack.enter_context(progress(config.progress, config.search.budget, done=state.counted))
        yield Session(
            config,
            brief,
            scorer,
            writer,
            folder,
            stack.enter_context(_appending(folder.programs, recorded.programs_size)),
            stack.enter_context(_appending(folder.answers, recorded.answers_size)),
            lessons=lessons,
            recorded=list(recorded.programs),
            replies=dict(recorded.replies),
            state=state,
            here=here,
            report=report,
            stop=stop,
            held=held,
            at=at,
            started=started,
        )


def _platform(config: AhdConfig) -> dict[str, Any]:
    """What the search runs on, told as of a training run."""
    model = ModelConfig(path=config.writer.model, dtype=config.writer.dtype)
    return platform_record(Config(model=model, es=ESConfig(master=config.es.master)))


def _appending(path: Path, keep: int) -> JsonlWriter:
    return JsonlWriter(path, keep=keep if path.exists() else None)


def conclude(session: Session, status: str) -> None:
    """Write what can be told of the search as it stands."""
    direction = session.scorer.direction
    write_text(session.folder.curve, curve_csv(session.recorded, direction))
    at = session.config
    states = (state for state, _ in replay(at.search, session.recorded, direction=direction, es=at.es))
    write_text(session.folder.populations, "".join(encode(row) + "\n" for row in population_rows(states)))
    recorded, state = session.recorded, session.state
    if state.best is not None:
        write_best(session.folder, state.best)
    write_json(
        session.folder.summary,
        {
            "status": status,
            "task": session.config.task.name,
            "method": session.config.search.method,
            "budget": session.config.search.budget,
            "calls": len(recorded),
            "invalid": sum(not program.valid for program in recorded),
            "duplicates": sum(program.twin is not None for program in recorded),
            "direction": direction,
            "best_objective": None if state.best is None else state.best.objective,
            "best_call": None if state.best is None else state.best.call,
            "population": [program.call for program in state.population],
            "wall_s": time.perf_counter() - session.started,
        },
    )
