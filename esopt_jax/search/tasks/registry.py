"""All tasks by name."""

from __future__ import annotations

from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.search.tasks.aco_bpp import ACO_BPP
from esopt_jax.search.tasks.aco_cvrp import ACO_CVRP
from esopt_jax.search.tasks.aco_tsp import ACO_TSP
from esopt_jax.search.tasks.construct_asp import CONSTRUCT_ASP
from esopt_jax.search.tasks.construct_kp import CONSTRUCT_KP
from esopt_jax.search.tasks.construct_tsp import CONSTRUCT_TSP
from esopt_jax.search.tasks.task import Task

TASKS = {task.name: task for task in (CONSTRUCT_TSP, CONSTRUCT_KP, CONSTRUCT_ASP, ACO_TSP, ACO_CVRP, ACO_BPP)}


def find_task(name: str) -> Task:
    """The task of a name.

    Raises:
        EsoptError: No such task.

    Example:
        >>> find_task("aco_tps")
        Traceback (most recent call last):
        esopt_jax.errors.EsoptError: no task 'aco_tps': did you mean 'aco_tsp'?
    """
    if name not in TASKS:
        raise EsoptError(f"no task {name!r}: {did_you_mean(name, TASKS)}")
    return TASKS[name]
