"""Source that several runners share. A runner travels into a sandbox as text, so these are texts too."""

from __future__ import annotations

COMMON = '''
import random

import numpy as np

_generator = np.random.default_rng


def repeatable(seed):
    """From here on every usual source of random numbers yields the same ones."""
    random.seed(int(seed))
    np.random.seed(int(seed))
    np.random.default_rng = lambda chosen=None: _generator(int(seed) if chosen is None else chosen)


def function(program, name):
    """The function that was asked for."""
    found = getattr(program, name, None)
    if not callable(found):
        raise ValueError(f"the program defines no function {name}")
    return found
'''
"""Defines `repeatable(seed)`, so that a program gets the same score again, and `function(program, name)`."""

MATRIX = '''
def matrix(answer, shape):
    """The answer of a heuristic as float64, if it has the right shape."""
    answer = np.asarray(answer)
    if answer.shape != shape or answer.dtype.kind not in "biuf":
        raise ValueError(f"heuristics_v2 returned {answer.dtype} {answer.shape}; numbers of shape {shape} are needed")
    return answer.astype(np.float64)
'''
"""Defines `matrix(answer, shape)`; needs `np`."""
