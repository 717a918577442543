"""Evaluating a program on a task, beside the published loops written plainly in NumPy and PyTorch.

    pip install -e '.[parity]' && python experiments/bench/ahd.py

The training instances of five tasks, the same program on both sides, float32 in the colonies. Both sides run in this
process, on one core, in turn. `ours` and `theirs` are evaluations a second, without the time inside the program, the
first evaluation (`compile_s`) and the sandbox; `ratio` above 1 means ours is faster, `spread` holds its quartiles. On
the two constructive tasks both sides must find the same objective; the ants draw their own numbers. One JSON object on
stdout.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["OMP_NUM_THREADS"] = "1"

import ahd_loops
import jax
import numpy as np
import torch
from ratio import compared

from esopt_jax.search.tasks.admissible import BLOCKS, INSEPARABLE
from esopt_jax.search.tasks.registry import TASKS
from esopt_jax.search.tasks.task import Arrays

PROGRAMS: dict[str, Callable] = {
    "construct_tsp": lambda here, goal, near, distances: near[0],
    "construct_asp": lambda el, n, w: sum((i % 5) * letter for i, letter in enumerate(el)) % 7,
    "aco_tsp": lambda distances: 1 / distances**2,
    "aco_cvrp": lambda distances, places, demands, capacity: 1 / distances**2,
    "aco_bpp": lambda demands, capacity: np.tile(demands / demands.max(), (len(demands), 1)),
}


@dataclass
class Clocked:
    """A function and the seconds spent inside it."""

    function: Callable
    inside: float = 0.0

    def __call__(self, *args: Any) -> Any:
        """Call it."""
        start = time.perf_counter()
        answer = self.function(*args)
        self.inside += time.perf_counter() - start
        return answer


def ours(name: str, program: Callable, inputs: Arrays) -> float:
    """The objective as this package finds it: the runner, then the scorer."""
    task = TASKS[name]
    scope: dict[str, Any] = {}
    exec(task.runner, scope)
    function = task.signature.removeprefix("def ").partition("(")[0]
    outputs = scope["run"](SimpleNamespace(**{function: program}), inputs)
    return float(task.objectives(inputs, outputs).mean())


def theirs(name: str, program: Callable, inputs: Arrays) -> float:
    """The objective as the plain loops find it."""
    if name == "construct_tsp":
        return ahd_loops.construct_tsp(program, inputs["cities"])
    if name == "construct_asp":
        letters, weight = inputs["words"].shape[2], int(inputs["weights"][0])
        return ahd_loops.construct_asp(program, BLOCKS, INSEPARABLE, letters, weight)
    if name == "aco_bpp":
        matrices = np.stack([program(row, 150) for row in inputs["demands"]])
        return ahd_loops.aco_bpp(matrices, inputs["demands"], 150)
    places = inputs["cities" if name == "aco_tsp" else "places"]
    distances = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
    distances[:, np.arange(places.shape[1]), np.arange(places.shape[1])] = 1
    if name == "aco_tsp":
        return ahd_loops.aco_tsp(np.stack([program(matrix) for matrix in distances]), places)
    matrices = np.stack([program(*row, 50) for row in zip(distances, places, inputs["demands"], strict=True)])
    return ahd_loops.aco_cvrp(matrices, places, inputs["demands"], 50)


def timed(side: Callable, name: str, inputs: Arrays) -> tuple[float, float]:
    """Seconds of one evaluation without those inside the program, and its objective."""
    program = Clocked(PROGRAMS[name])
    start = time.perf_counter()
    objective = side(name, program, inputs)
    return time.perf_counter() - start - program.inside, objective


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Both sides of one task in turn."""
    inputs = TASKS[name].instances("train")
    first, objective = timed(ours, name, inputs)
    found = [(timed(ours, name, inputs), timed(theirs, name, inputs)) for _ in range(rounds)]
    if name.startswith("construct_") and not np.allclose([f[1][1] for f in found], objective, rtol=0, atol=1e-9):
        raise SystemExit(f"{name}: objectives differ: {objective} and {found[0][1][1]}")
    again = [our[0] for our, _ in found]
    return {
        **compared([1 / our[0] for our, _ in found], [1 / their[0] for _, their in found], digits=3),
        "compile_s": round(max(0.0, first - float(np.median(again))), 2),
        "objectives": {"ours": round(objective, 5), "theirs": round(found[0][1][1], 5)},
    }


def main() -> None:
    """Measure the tasks one after the other, print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=PROGRAMS, default=[*PROGRAMS], metavar="TASK")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    result = {
        "name": "ahd",
        "unit": "evaluations/s, one core",
        "tasks": {name: measure(name, args.rounds) for name in args.tasks},
        "versions": {"jax": jax.__version__, "torch": torch.__version__, "numpy": np.__version__},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
