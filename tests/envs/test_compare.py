import copy
import dataclasses
import random
import threading
from collections import Counter, OrderedDict, deque, namedtuple

import numpy as np
import pytest

from esopt_jax.envs.compare import IncomparableError, same

Pair = namedtuple("Pair", "left right")


class Plain:
    """Without `__eq__`, so that it differs from its own copy."""

    def __init__(self, value):
        self.value = value


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@dataclasses.dataclass
class Data:
    value: object


def drawn(seed):
    rng = random.Random(seed)
    rng.random()
    return rng


DIFFERENT = [
    (1, 2),
    (1, 1.0),
    (1, True),
    ("a", "b"),
    (None, 0),
    ([1, 2], [1, 2, 3]),
    ([1, 2], (1, 2)),
    ([[1], [2]], [[1], [3]]),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {"b": 1}),
    ({"a": 1, "b": 2}, {"a": 1}),
    ({1, 2}, {1, 3}),
    (Pair(1, [2]), Pair(1, [3])),
    (Plain(1), Plain(2)),
    (Plain([1]), Plain([2])),
    (Slots(1), Slots(2)),
    (Data(Plain(1)), Data(Plain(2))),
    (deque([1]), deque([2])),
    (Counter("a"), Counter("b")),
    (OrderedDict(a=1), OrderedDict(a=2)),
    (drawn(1), drawn(2)),
    (random.Random(1), drawn(1)),
    (np.zeros(3), np.zeros(4)),
    (np.zeros(3), np.array([0.0, 0.0, 1.0])),
    (np.zeros(3, np.int64), np.zeros(3, np.float64)),
    (np.random.default_rng(1), np.random.default_rng(2)),
    (float("nan"), 0.0),
]


@pytest.mark.parametrize(
    ("one", "other"), DIFFERENT, ids=[f"{i}-{type(pair[0]).__name__}" for i, pair in enumerate(DIFFERENT)]
)
def test_a_difference_is_seen_and_a_copy_is_the_same(one, other):
    assert not same(one, other) and not same(other, one)
    for value in (one, other):
        assert same(value, copy.deepcopy(value))
        assert same([value, {"x": value}], copy.deepcopy([value, {"x": value}]))


def test_not_a_number_is_like_itself():
    assert same({"x": float("nan")}, {"x": float("nan")})
    assert same(Data(float("nan")), Data(float("nan")))


def test_cycles_end():
    one, other = [1], [1]
    one.append(one)
    other.append(other)
    assert same(one, other)
    other[0] = 2
    assert not same(one, other)


def test_what_cannot_be_taken_apart_says_so():
    with pytest.raises(IncomparableError, match="lock cannot be copied or compared"):
        same(threading.Lock(), threading.Lock())
    lock = threading.Lock()
    assert same([lock], [lock])
