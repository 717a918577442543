"""Admissible sets built from blocks of three: the greedy choice, and what each chosen word rules out.

Words over {0, 1, 2} are written as codes, one of seven block types for every three letters. A word stands for all words
that rotate its blocks. Three words are compatible if, however their blocks are rotated, some letter position holds 0, 1
and 2, or 0 twice beside 1 or 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

BLOCKS = ((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 2, 1), (1, 1, 1), (2, 2, 2))
"""The block types, up to rotation, in the published order."""

WEIGHTS = np.count_nonzero(BLOCKS, axis=1)
_SEPARATING = ((0, 0, 1), (0, 0, 2), (0, 1, 2))


def rotations(block: Sequence[int]) -> set[tuple[int, ...]]:
    """The different rotations of a block: one of a constant block, else three.

    Example:
        >>> sorted(rotations((0, 0, 1)))
        [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    """
    return {(*block[i:], *block[:i]) for i in range(len(block))}


def _separate(blocks: Sequence[Sequence[int]]) -> bool:
    """Whether some position tells the three blocks apart, as they are rotated now."""
    return any(tuple(sorted(letters)) in _SEPARATING for letters in zip(*blocks, strict=True))


INSEPARABLE = np.array(
    [
        not all(map(_separate, itertools.product(*map(rotations, types))))
        for types in itertools.product(BLOCKS, repeat=3)
    ]
).reshape((len(BLOCKS),) * 3)
"""`[7, 7, 7]` bool: three block types with rotations that no position separates."""


def codes_of_weight(blocks: int, weight: int) -> np.ndarray:
    """All codes of words with so many letters that are not 0, `[count, blocks]`, in lexicographic order.

    Example:
        >>> codes_of_weight(2, 5).tolist()
        [[3, 5], [3, 6], [4, 5], [4, 6], [5, 3], [5, 4], [6, 3], [6, 4]]
    """
    codes = np.indices((len(BLOCKS),) * blocks, dtype=np.int8).reshape(blocks, -1).T
    kept: np.ndarray = codes[WEIGHTS[codes].sum(axis=1) == weight]
    return kept


def as_words(codes: np.ndarray) -> np.ndarray:
    """The letters of codes, `[count, 3 blocks]` int32, without the rotations.

    Example:
        >>> as_words(np.array([[1, 3]])).tolist()
        [[0, 0, 1, 0, 1, 2]]
    """
    words: np.ndarray = np.array(BLOCKS, dtype=np.int32)[codes].reshape(len(codes), -1)
    return words


def greedy_set(codes: np.ndarray, priorities: np.ndarray) -> np.ndarray:
    """Indices of the codes that are chosen, best first: always the one of largest priority that is still allowed.

    Chosen codes rule out those that have their weight in every block, and those that some two of them make
    incompatible.

    Args:
        codes: `[count, blocks]`, all of the same weight, all different.
        priorities: `[count]`; of equal ones the first counts as larger.
    """
    blocks = codes.shape[1]
    allowed = np.zeros((len(BLOCKS),) * blocks, dtype=bool)  # a rule is a product of sets of types: a slice of this
    allowed[tuple(codes.T)] = True
    same_weight = [np.flatnonzero(row) for row in WEIGHTS[:, None] == WEIGHTS]
    chosen: list[int] = []
    for index in np.argsort(-priorities, kind="stable"):
        code = codes[index]
        if not allowed[tuple(code)]:
            continue
        allowed[np.ix_(*(same_weight[kind] for kind in code))] = False
        for earlier in codes[chosen]:
            inseparable = INSEPARABLE[earlier, code]
            if inseparable.any(axis=1).all():
                allowed[np.ix_(*inseparable)] = False
        chosen.append(int(index))
    return np.array(chosen, dtype=np.int64)


def words_for(codes: np.ndarray) -> int:
    """How many words the codes stand for, all rotations of their blocks counted.

    Example:
        >>> words_for(np.array([[0, 1], [3, 4]]))  # 1 * 3 + 3 * 3
        12
    """
    turns = np.array([len(rotations(block)) for block in BLOCKS])
    return int(turns[codes].prod(axis=1).sum())
