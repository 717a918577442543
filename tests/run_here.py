"""A task's runner beside a program of the test's own, not a stranger's: no sandbox is needed."""

import random
from types import SimpleNamespace

import numpy as np


def run_here(task, function, inputs):
    """The outputs of `task.runner` for a program that is `function` alone."""
    name = task.signature.removeprefix("def ").partition("(")[0]
    return run_beside(task.runner, {name: function}, inputs)


def run_beside(runner, program, inputs):
    """The outputs of a runner for a program that is these names."""
    scope = {}
    drawn, generator = (random.getstate(), np.random.get_state()), np.random.default_rng  # noqa: NPY002
    try:
        exec(runner, scope)
        return scope["run"](SimpleNamespace(**program), inputs)
    finally:  # a runner seeds its process, which here is the test's
        np.random.default_rng = generator
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])  # noqa: NPY002


class NoSandbox:
    """Runs code in this process, with the interface of a sandbox."""

    def __init__(self):
        self.runs = 0

    def run(self, code, runner, inputs):
        self.runs += 1
        try:
            scope = {}
            exec(code, scope)
            return SimpleNamespace(outputs=run_beside(runner, scope, inputs))
        except Exception as fault:
            return SimpleNamespace(reason=f"{type(fault).__name__}: {fault}")
