"""A large admissible set: the program says which words to take first."""

from __future__ import annotations

import numpy as np

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.admissible import as_words, codes_of_weight, greedy_set, words_for
from esopt_jax.search.tasks.instances import check_array, instance_seeds
from esopt_jax.search.tasks.runner_parts import COMMON
from esopt_jax.search.tasks.task import Arrays, InvalidSolutionError, Split, Task

_WEIGHTS = {12: 7, 15: 10, 21: 15}
"""Letters of a word -> those of them that are not 0, as published."""

_RUNNER = (
    COMMON
    + '''

def run(program, inputs):
    """The priority of every word, in the order in which they come."""
    words, weight = inputs["words"][0], int(inputs["weights"][0])
    repeatable(inputs["seeds"][0])
    priority, letters = function(program, "priority"), words.shape[1]
    return {"priorities": np.array([[float(priority(tuple(word), letters, weight)) for word in words.tolist()]])}
'''
)


def _draw(split: Split, size: int) -> np.ndarray:
    """The problem of a size, `[1, 2]` int64: letters and weight; every split is the same, since nothing is drawn."""
    if size not in _WEIGHTS:
        raise EsoptError(f"words of {size} letters: their weight is not known; --size must be one of {[*_WEIGHTS]}")
    return np.array([[size, _WEIGHTS[size]]])


def _inputs(array: np.ndarray) -> Arrays:
    check_array(array, "letters and weight", (1, 2))
    letters, weight = array[0].tolist()
    problems = []
    if letters % 3 or not 3 <= letters <= max(_WEIGHTS):
        problems.append(f"words of {letters:g} letters; allowed: multiples of 3 up to {max(_WEIGHTS)}")
    if weight % 1 or not 0 <= weight <= letters:
        problems.append(f"words of weight {weight:g}; allowed: whole numbers from 0 to the number of letters")
    if problems:
        raise EsoptError("; ".join(problems))
    letters, weight = int(letters), int(weight)
    words = as_words(codes_of_weight(letters // 3, weight))
    return {"words": words[None], "weights": np.array([weight]), "seeds": instance_seeds(1, letters)}


def set_sizes(inputs: Arrays, outputs: Arrays) -> np.ndarray:
    """Sizes of the admissible sets that come of taking words by priority, `[1]` float64.

    Args:
        inputs: `words` `[1, count, n]` and `weights` `[1]`.
        outputs: `priorities` `[1, count]` numbers.

    Raises:
        InvalidSolutionError: No such array, another shape or kind, or NaN.
    """
    words, priorities = inputs["words"], outputs.get("priorities")
    if priorities is None or priorities.shape != words.shape[:2] or priorities.dtype.kind not in "iuf":
        got = "nothing" if priorities is None else f"{priorities.dtype} {priorities.shape}"
        raise InvalidSolutionError(f"priorities: {got}; numbers of shape {words.shape[:2]} are needed")
    if np.isnan(priorities).any():
        raise InvalidSolutionError(f"the priority of word {np.isnan(priorities[0]).argmax()} is NaN")
    codes = codes_of_weight(words.shape[2] // 3, int(inputs["weights"][0]))
    chosen = greedy_set(codes, priorities[0].astype(np.float64))
    return np.array([words_for(codes[chosen])], dtype=np.float64)


CONSTRUCT_ASP = Task(
    name="construct_asp",
    signature="def priority(el, n, w):",
    description=(
        "Say how early to take a word, so that a greedy choice of words, each of which rules others out, becomes a "
        "large symmetric admissible set. el is a tuple of n letters 0, 1 or 2, w of them not 0; its blocks of three "
        "count up to rotation. In an admissible set any three words have a position with letters 0, 1, 2, or 0, 0, 1, "
        "or 0, 0, 2 in some order. Return a number; words of larger ones are taken first."
    ),
    direction="max",
    sizes={"train": (15,), "val": (15,), "test": (15, 12, 21)},
    draw=_draw,
    inputs=_inputs,
    runner=_RUNNER,
    objectives=set_sizes,
)
