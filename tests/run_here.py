"""A task's runner beside a function of the test's own, not a stranger's: no sandbox is needed."""

import random
from types import SimpleNamespace

import numpy as np


def run_here(task, function, inputs):
    """The outputs of `task.runner` for a program that is `function` alone."""
    scope = {}
    drawn, generator = (random.getstate(), np.random.get_state()), np.random.default_rng  # noqa: NPY002
    try:
        exec(task.runner, scope)
        name = task.signature.removeprefix("def ").partition("(")[0]
        return scope["run"](SimpleNamespace(**{name: function}), inputs)
    finally:  # a runner seeds its process, which here is the test's
        np.random.default_rng = generator
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])  # noqa: NPY002
