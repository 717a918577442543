"""One value of a config: from YAML to the type that the schema asks for, or a line that says why not.

YAML holds more than a run can be written down with: dates, sets, values that contain themselves. What is accepted here
comes back from a run folder as it was.
"""

from __future__ import annotations

import reprlib
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

import yaml

from esopt_jax.errors import did_you_mean

_MAX_INT = 10**100
"""Beyond any use, and short enough to be printed: Python refuses to write an integer of 4300 digits."""

_MAX_DEPTH, _MAX_NODES = 32, 100_000
"""Of a value in `env.options`: aliases make a few lines of YAML endless, or larger than any memory."""


def parse_yaml(text: str) -> Any:
    """As `yaml.safe_load`, but a key that is there twice is a mistake, of which YAML would keep the last.

    Raises:
        ValueError: the text is no YAML.
    """
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            _refuse_duplicates(node, set())
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except Exception as fault:  # besides YAMLError: a date that does not exist, a tag on the wrong value, deep nesting
        raise ValueError(str(fault) or type(fault).__name__) from None


def _refuse_duplicates(node: yaml.Node | None, visited: set[int]) -> None:
    if node is None or isinstance(node, yaml.ScalarNode) or id(node) in visited:
        return
    visited.add(id(node))
    seen: set[tuple[str, str]] = set()
    for item in node.value:
        key, value = item if isinstance(node, yaml.MappingNode) else (None, item)
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if (key.tag, key.value) in seen:
                raise ValueError(f"{key.value!r} is there twice, in line {key.start_mark.line + 1}; keep one of them")
            seen.add((key.tag, key.value))
        _refuse_duplicates(value, visited)


def coerce(kind: Any, value: Any, where: str, found: list[str]) -> Any:
    """`value` as `kind`, or a problem. YAML reads `1e-3` as text, so numbers given as text are parsed."""
    origin, args = get_origin(kind), get_args(kind)
    allowed = ""
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return coerce(next(a for a in args if a is not type(None)), value, where, found)
    if origin is Literal:
        value = "none" if value is None and "none" in args else value
        if value in args:
            return value
        allowed = did_you_mean(value if isinstance(value, str) else shown(value), map(str, args))
    elif origin is tuple:
        if isinstance(value, list | tuple) and len(value) == len(args):
            return tuple(coerce(a, v, where, found) for a, v in zip(args, value, strict=True))
        allowed = f"it must be a list of {len(args)} values"
    elif origin is dict:
        if isinstance(value, Mapping):
            return _coerce_mapping(args[1], value, where, found)
        allowed = "it must be a mapping"
    elif kind is bool:
        if isinstance(value, bool):
            return value
        allowed = "it must be true or false"
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_INT:
            return value
        allowed = "it must be a whole number"
    elif kind is float:
        try:
            if isinstance(value, int | float | str) and not isinstance(value, bool):
                return float(value)
        except (ValueError, OverflowError):
            pass
        allowed = "it must be a number"
    elif kind is str:
        if isinstance(value, str | int | float) and not isinstance(value, bool) and _is_plain(value):
            return str(value)
        allowed = "it must be text, without lone surrogates"
    found.append(f"{where} is {shown(value)}; {allowed}")
    return None


def _coerce_mapping(inner: Any, value: Mapping[Any, Any], where: str, found: list[str]) -> dict[str, Any] | None:
    if inner is not Any:
        return {str(k): coerce(inner, v, f"{where}.{k}", found) for k, v in value.items()}
    try:
        plain = _plain(value, where)
    except ValueError as fault:
        found.append(str(fault))
        return None
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any, where: str) -> Any:
    """A copy of what YAML and JSON can hold, with texts as keys, so that a run folder gives back what it was given.

    Raises:
        ValueError: something in it is more than that.
    """
    left = _MAX_NODES

    def walk(value: Any, where: str, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > _MAX_DEPTH or left < 0:
            raise ValueError(f"{where[:200]} is nested too deep, or has too many values; keep large data in a file")
        if value is None or (isinstance(value, bool | int | float | str) and _is_plain(value)):
            return value
        if isinstance(value, list | tuple):
            return [walk(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        if isinstance(value, Mapping):
            found = {}
            for key, item in value.items():
                if isinstance(key, bool) or not isinstance(key, str | int) or not _is_plain(key) or str(key) in found:
                    raise ValueError(f"{where} has the key {shown(key)}; its keys must be texts, each there once")
                found[str(key)] = walk(item, f"{where}.{key}", depth + 1)
            return found
        allowed = "texts, numbers, true, false, null, lists and mappings"
        raise ValueError(f"{where} is {shown(value)}; options are made of {allowed}")

    return walk(value, where, 0)


def _is_plain(value: bool | int | float | str) -> bool:
    """Whether files give it back as it was: UTF-8 knows no lone surrogates."""
    if isinstance(value, str):
        return not any("\ud800" <= c <= "\udfff" for c in value)
    return isinstance(value, float) or abs(value) < _MAX_INT


def shown(value: Any) -> str:
    """Its `repr`, cut short where it is long."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother, short.maxlong = 4, 100, 100, 110
    try:
        return short.repr(value)
    except ValueError:  # an integer of more than 4300 digits
        return f"a {type(value).__name__} too long to print"


def one_line(message: str) -> str:
    """Without the line breaks and control characters that a name in it may hold."""
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())
