"""From a config to a search: its task, who scores and who writes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.search.config import AhdConfig, TaskConfig, WriterConfig, load_ahd_config
from esopt_jax.search.loop import search
from esopt_jax.search.run_files import SearchFolder
from esopt_jax.search.scripted import scripted_writer
from esopt_jax.search.settings import SearchConfig, asked_for
from esopt_jax.search.state import SearchState
from esopt_jax.search.task_scorer import TaskScorer
from esopt_jax.search.tasks.published import as_published
from esopt_jax.search.tasks.registry import find_task
from esopt_jax.search.tasks.task import Task
from esopt_jax.search.writer import Writer
from esopt_jax.training.run_folder import check_run_dir


def run_search(config: AhdConfig, run_dir: str | Path) -> SearchState:
    """A new search in a new or empty folder; raises as `loop.search`."""
    check_run_dir(Path(run_dir))  # before a model is read
    return _search(config, Path(run_dir), resume=False)


def resume_search(run_dir: str | Path) -> SearchState:
    """Go on with the search in a folder, under its own config; raises as `loop.search`."""
    folder = SearchFolder(Path(run_dir))
    if not folder.config.is_file():
        raise EsoptError(f"{str(run_dir)!r} holds no search: it has no {folder.config.name}")
    return _search(load_ahd_config(folder.config), folder.path, resume=True)


def _search(config: AhdConfig, run_dir: Path, *, resume: bool) -> SearchState:
    task = find_task(config.task.name)
    if config.task.published:
        task = as_published(task, config.task.split)
    with open_scorer(task, config.task) as scorer:
        if not config.es.enabled:
            writer = make_writer(config.writer, config.search, task)
            return search(config, run_dir, brief=task, scorer=scorer, writer=writer, resume=resume)
        from esopt_jax.search.evolver import load_evolver

        evolver = load_evolver(config.writer, config.search, config.es)
        state = search(config, run_dir, brief=task, scorer=scorer, writer=evolver, evolver=evolver, resume=resume)
        evolver.save(SearchFolder(run_dir).final)
        return state


@contextmanager
def open_scorer(task: Task, config: TaskConfig) -> Iterator[TaskScorer]:
    """The scorer of a task, its sandboxes open within the block."""
    sandbox: Any = importlib.import_module("esopt_jax.tools.sandbox")
    limits = sandbox.Limits(cpu_s=config.cpu_s)
    with ExitStack() as stack:
        opened: Sequence[Any] = [
            stack.enter_context(sandbox.Sandbox(limits=limits, unsafe=config.unsafe)) for _ in range(config.workers)
        ]
        yield TaskScorer(task, task.instances(config.split, config.size or None), opened)


def make_writer(config: WriterConfig, search: SearchConfig, task: Task) -> Writer:
    """The writer of a config.

    Raises:
        EsoptError: it cannot be used.
    """
    match config.backend:
        case "scripted":
            return scripted_writer(task.name, task.signature)
        case "endpoint":
            from esopt_jax.search.endpoint import EndpointWriter

            return EndpointWriter(config)
        case "model":
            from esopt_jax.search.model_writer import load_writer

            largest = max(asked_for(search, operator) for operator in ("i1", "m1"))
            return load_writer(config, rows=config.rows or largest)
