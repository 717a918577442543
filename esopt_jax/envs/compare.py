"""Whether two values are alike, part by part, whatever they are made of.

`==` does not say it: an object without `__eq__` differs from its own copy, `nan` differs from itself, and arrays answer
with an array. Values are therefore taken apart as `copy` and `pickle` take them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any


class IncomparableError(TypeError):
    """A value that cannot be taken apart, such as a lock, a generator or an open file."""


def same(one: Any, other: Any) -> bool:
    """Whether `one` and `other` have the same type and the same parts.

    Raises:
        IncomparableError: a part can be neither compared nor taken apart.

    Example:
        >>> same({"board": [1, float("nan")]}, {"board": [1, float("nan")]})
        True
        >>> same([1, 2], [1, 2.0])
        False
    """
    return _same(one, other, set())


def _same(one: Any, other: Any, open_pairs: set[tuple[int, int]]) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, str | bytes | int | float | complex):
        return bool(one == other) or (one != one and other != other)
    pair = (id(one), id(other))
    if pair in open_pairs:  # a cycle: alike unless another part tells them apart
        return True
    open_pairs.add(pair)
    try:
        return _same_parts(one, other, open_pairs)
    finally:
        open_pairs.discard(pair)


def _same_parts(one: Any, other: Any, open_pairs: set[tuple[int, int]]) -> bool:
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(_same(a, b, open_pairs) for a, b in zip(one, other, strict=True))
    if type(one) is dict:
        return _same_mapping(one, other, open_pairs)
    if isinstance(one, Set):
        return bool(one == other)
    if hasattr(one, "dtype") and hasattr(one, "tobytes"):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return _same(_parts(one), _parts(other), open_pairs)


def _same_mapping(one: Mapping, other: Mapping, open_pairs: set[tuple[int, int]]) -> bool:
    return one.keys() == other.keys() and all(_same(value, other[key], open_pairs) for key, value in one.items())


def _parts(value: Any) -> Any:
    """What `copy` would rebuild `value` from, its iterators as lists."""
    try:
        parts = type(value).__reduce_ex__(value, 4)
    except Exception as fault:  # objects may refuse in any way they like
        raise IncomparableError(f"{type(value).__name__} cannot be copied or compared") from fault
    if isinstance(parts, str):
        return parts
    make, arguments, state, items, pairs = (*parts, None, None, None)[:5]
    return getattr(make, "__qualname__", ""), arguments, state, list(items or ()), list(pairs or ())
