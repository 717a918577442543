"""The wire format of the sandbox: a JSON header and the raw bytes of arrays, every size known before it is allocated.

A frame is `<header bytes: uint32> <payload bytes: uint64> header payload`. Nothing in it is ever executed, and what
comes from a stranger's program is checked as such: see `unpack_arrays`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

PREFIX = struct.Struct("<IQ")
DTYPES = ("float64", "float32", "int64", "int32", "bool")
_MOST_ARRAYS = 256
_MOST_AXES = 32


class FrameError(ValueError):
    """These bytes are no frame, or an array that no frame carries."""


def pack(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """One frame.

    Example:
        >>> unpack(pack({"call": 3}, b"abc"), limit=100)
        ({'call': 3}, b'abc')
    """
    text = json.dumps(header, allow_nan=False).encode()
    return PREFIX.pack(len(text), len(payload)) + text + payload


def body_size(prefix: bytes, limit: int) -> int:
    """How many bytes follow the prefix.

    Raises:
        FrameError: more than `limit`.
    """
    header, payload = PREFIX.unpack(prefix)
    if header + payload > limit:
        raise FrameError(f"a frame of {header + payload} bytes; at most {limit} are read")
    return int(header + payload)


def unpack(frame: bytes, limit: int) -> tuple[dict[str, Any], bytes]:
    """Header and payload of exactly one frame.

    Raises:
        FrameError: too long, cut short, followed by more, or with a header that is no JSON object.
    """
    if len(frame) < PREFIX.size:
        raise FrameError(f"{len(frame)} bytes are no frame")
    if body_size(frame[: PREFIX.size], limit) != len(frame) - PREFIX.size:
        raise FrameError("a frame that is cut short or has bytes behind it")
    end = PREFIX.size + PREFIX.unpack_from(frame)[0]
    try:
        header = json.loads(frame[PREFIX.size : end])
    except (ValueError, RecursionError) as fault:
        raise FrameError("a header that is not JSON") from fault
    if not isinstance(header, dict):
        raise FrameError("a header that is not an object")
    return header, frame[end:]


def pack_arrays(arrays: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bytes]:
    """What to say of arrays in the header, and their bytes for the payload.

    Raises:
        FrameError: a dtype that is not in `DTYPES`; a list of huge integers becomes one of those, dtype `object`.
    """
    if not isinstance(arrays, Mapping):
        raise FrameError(f"{type(arrays).__name__} instead of a dict of arrays")
    specs, parts = [], []
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.name not in DTYPES:
            raise FrameError(f"{name}: an array of {array.dtype.name}; allowed: {', '.join(DTYPES)}")
        specs.append({"name": str(name), "dtype": array.dtype.name, "shape": list(array.shape)})
        parts.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return specs, b"".join(parts)


def unpack_arrays(specs: Any, payload: bytes) -> dict[str, np.ndarray]:
    """The arrays, writable copies; `specs` may come from a stranger.

    Example:
        >>> specs, payload = pack_arrays({"tour": [2, 0, 1]})
        >>> unpack_arrays(specs, payload)
        {'tour': array([2, 0, 1])}

    Raises:
        FrameError: names, dtypes or shapes that are none, or that do not add up to the payload.
    """
    if not isinstance(specs, list) or len(specs) > _MOST_ARRAYS:
        raise FrameError(f"no list of at most {_MOST_ARRAYS} arrays")
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for spec in specs:
        name, dtype, shape = _checked(spec)
        end = start + math.prod(shape) * dtype.itemsize
        if end > len(payload) or name in arrays:
            raise FrameError(f"{name}: twice, or with more numbers than were sent")
        raw = np.frombuffer(payload[start:end], np.uint8 if dtype == np.bool_ else dtype)
        # A byte of 7 would be a bool that is neither True nor False.
        arrays[name] = (raw != 0 if dtype == np.bool_ else raw.copy()).reshape(shape)
        start = end
    if start != len(payload):
        raise FrameError(f"{len(payload) - start} bytes that belong to no array")
    return arrays


def _checked(spec: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """Name, dtype and shape of an array, if they are such."""
    fields = spec if isinstance(spec, dict) else {}
    name, dtype, shape = fields.get("name"), fields.get("dtype"), fields.get("shape")
    if not isinstance(name, str) or dtype not in DTYPES or not isinstance(shape, list) or len(shape) > _MOST_AXES:
        raise FrameError("an array without a name, a known dtype or a shape")
    if not all(type(size) is int and 0 <= size < 2**48 for size in shape):
        raise FrameError(f"{name[:80]}: a shape with sizes that are none")
    return name, np.dtype(dtype).newbyteorder("<"), tuple(shape)
