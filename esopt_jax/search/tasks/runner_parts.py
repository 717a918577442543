"""Source that several runners share. A runner travels into a sandbox as text, so these are texts too."""

from __future__ import annotations

REPEATABLE = '''
import random

import numpy as np

_generator = np.random.default_rng


def repeatable(seed):
    """From here on every usual source of random numbers yields the same ones."""
    random.seed(int(seed))
    np.random.seed(int(seed))
    np.random.default_rng = lambda chosen=None: _generator(int(seed) if chosen is None else chosen)
'''
"""Defines `repeatable(seed)`: the same program gets the same score, whatever it draws."""

MATRIX = '''
def matrix(answer, shape):
    """The answer of a heuristic as float64, if it has the right shape."""
    answer = np.asarray(answer)
    if answer.shape != shape or answer.dtype.kind not in "biuf":
        raise ValueError(f"heuristics_v2 returned {answer.dtype} {answer.shape}; numbers of shape {shape} are needed")
    return answer.astype(np.float64)
'''
"""Defines `matrix(answer, shape)`; needs `np`."""
