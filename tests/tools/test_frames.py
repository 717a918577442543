"""What a stranger may send: exactly one frame that adds up, or an error; never a large allocation."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esopt_jax.tools import frames

SPEC = {"name": "a", "dtype": "float64", "shape": [2]}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_an_error(data):
    try:
        header, payload = frames.unpack(data, limit=1000)
    except frames.FrameError:
        return
    assert isinstance(header, dict) and isinstance(payload, bytes)


BROKEN_FRAMES = {
    "empty": b"",
    "cut": frames.pack({"a": 1}, b"abc")[:-1],
    "longer": frames.pack({"a": 1}, b"abc") + b"d",
    "twice": frames.pack({"a": 1}) * 2,
    "too large": frames.pack({}, bytes(2000)),
    "said to be huge": frames.PREFIX.pack(2**32 - 1, 2**64 - 1),
    "no JSON": frames.PREFIX.pack(3, 0) + b"{a}",
    "no UTF-8": frames.PREFIX.pack(2, 0) + b"\xff\xfe",
    "no object": frames.PREFIX.pack(2, 0) + b"[]",
    "deep": frames.PREFIX.pack(900, 0) + b"[" * 900,
    "a long integer": frames.PREFIX.pack(5007, 0) + b'{"a":1' + b"0" * 5000 + b"}",
}


@pytest.mark.parametrize("name", BROKEN_FRAMES)
def test_a_frame_that_is_none_is_refused(name):
    with pytest.raises(frames.FrameError):
        frames.unpack(BROKEN_FRAMES[name], limit=10_000 if name == "a long integer" else 1000)


BROKEN_ARRAYS = {
    "no list": {"a": 1},
    "no object": [1],
    "no name": [SPEC | {"name": 3}],
    "object dtype": [SPEC | {"dtype": "object"}],
    "unhashable dtype": [SPEC | {"dtype": ["float64"]}],
    "a dtype of records": [SPEC | {"dtype": "f8,O"}],
    "negative": [SPEC | {"shape": [-2]}],
    "two negatives": [SPEC | {"shape": [-1, -2]}],
    "fraction": [SPEC | {"shape": [2.0]}],
    "truth": [SPEC | {"shape": [True, 2]}],
    "overflow": [SPEC | {"shape": [2**32, 2**32]}],
    "beyond": [SPEC | {"shape": [2**63, 0]}],
    "many axes": [SPEC | {"shape": [1] * 65}],
    "more than sent": [SPEC | {"shape": [3]}],
    "less than sent": [SPEC | {"shape": [1]}],
    "twice": [SPEC | {"shape": [1]}] * 2,
    "many": [SPEC | {"name": str(i), "shape": [0]} for i in range(300)],
}


@pytest.mark.parametrize("name", BROKEN_ARRAYS)
def test_arrays_that_do_not_add_up_are_refused(name):
    with pytest.raises(frames.FrameError):
        frames.unpack_arrays(json.loads(json.dumps(BROKEN_ARRAYS[name])), bytes(16))


def test_every_byte_of_a_bool_is_true_or_false():
    (array,) = frames.unpack_arrays([{"name": "a", "dtype": "bool", "shape": [3]}], b"\x00\x01\x07").values()
    assert array.tobytes() == b"\x00\x01\x01"


@pytest.mark.parametrize("dtype", frames.DTYPES)
def test_arrays_come_back_as_they_were(dtype):
    arrays = {"a": np.arange(24).reshape(2, 3, 4).astype(dtype)[:, ::-1].T, "b": np.ones((), dtype)}
    back = frames.unpack_arrays(*frames.pack_arrays(arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array, strict=True)


def test_the_other_byte_order_is_turned():
    back = frames.unpack_arrays(*frames.pack_arrays({"a": np.arange(3, dtype=">i8")}))
    np.testing.assert_array_equal(back["a"], np.arange(3), strict=True)
