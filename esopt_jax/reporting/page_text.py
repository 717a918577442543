"""How data gets into a page without being able to be anything but data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from typing import Any, NamedTuple


class Packed(NamedTuple):
    """JSON, compressed. `size` is in bytes and that of the JSON: a reader stops there."""

    text: str
    size: int


def as_json(tree: Any) -> str:
    r"""JSON that may stand in a script block: pure ASCII without `<`, `>` and `&`; what is not finite is null.

    Example:
        >>> as_json({"said": "</script>\u2028\ud800", "reward": math.nan})
        '{"said":"\\u003c/script\\u003e\\u2028\\ud800","reward":null}'
    """
    text = json.dumps(_finite(tree), ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")  # these occur within strings only
    return text


def packed(tree: Any) -> Packed:
    """The same as gzip and base64, for what is read when it is asked for. Equal trees give equal text.

    Example:
        >>> text, size = packed(["a" * 1000])
        >>> size, json.loads(gzip.decompress(base64.b64decode(text))) == ["a" * 1000]
        (1004, True)
    """
    raw = as_json(tree).encode("ascii")
    return Packed(base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii"), len(raw))


def digest_source(text: str) -> str:
    """The source expression of a Content-Security-Policy that allows this script or style and no other.

    Example:
        >>> digest_source("")
        "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
