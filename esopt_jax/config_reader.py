"""From a preset or a YAML file to a validated `Config`.

Precedence: defaults < preset or file < `--set section.key=value`. Unknown keys are errors that name the nearest right
one, and everything that is wrong is said at once, so that a user fixes a file once.
"""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from esopt_jax.config import Config, problems
from esopt_jax.errors import EsoptError, did_you_mean

PRESETS = Path(__file__).parent / "presets"


def load_config(source: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The validated config of a preset name or a YAML file, with `section.key=value` overrides applied.

    Raises:
        EsoptError: unknown preset, unreadable file, unknown key, wrong type or invalid value; all problems at once.

    Example:
        >>> load_config("quickstart", ["es.generations=3"]).es.generations
        3
    """
    path = _find(source)
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as fault:
        raise EsoptError(f"cannot read {path}: {' '.join(str(fault).split())}") from None
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        raise EsoptError(f"{path} holds {type(tree).__name__}; it must hold a mapping such as 'es: {{sigma: 0.01}}'")
    tree.setdefault("preset", path.stem)
    for override in overrides:
        _apply_override(tree, override)
    return from_dict(tree)


def preset_names() -> list[str]:
    """Names of the runnable presets shipped in the package."""
    return sorted(p.stem for p in PRESETS.glob("*.yaml"))


def _find(source: str | Path) -> Path:
    text = str(source)
    if text in preset_names():
        return PRESETS / f"{text}.yaml"
    path = Path(text)
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        if os.path.isfile(path):  # unlike `Path.is_file`, says no to a name that the system refuses
            return path
        raise EsoptError(f"config file {text!r} does not exist; give a path to a YAML file or a preset name")
    raise EsoptError(f"unknown preset {text!r}; {did_you_mean(text, preset_names())}")


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise EsoptError(f"--set {override!r} is not of the form section.key=value, such as es.sigma=0.01")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    node = tree
    *sections, leaf = key.strip().split(".")
    for name in sections:
        child = node.setdefault(name, {})
        if not isinstance(child, dict):
            raise EsoptError(f"--set {override!r}: {name!r} is not a section")
        node = child
    node[leaf] = value


def from_dict(tree: Mapping[str, Any]) -> Config:
    """A validated `Config` from a nested mapping; missing keys take their defaults.

    Raises:
        EsoptError: with every problem of the mapping in one message.
    """
    found: list[str] = []
    config = _build(Config, tree, "", found)
    if not found:
        found = problems(config)
    if found:
        raise EsoptError("; ".join(found))
    assert isinstance(config, Config)
    return config


def _build(kind: type, tree: Any, where: str, found: list[str]) -> Any:
    if not isinstance(tree, Mapping):
        found.append(f"{where.rstrip('.')} is {tree!r}; it must be a section with keys")
        return None
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in hints:
            found.append(f"unknown key '{where}{name}': {did_you_mean(str(name), hints)}")
        elif dataclasses.is_dataclass(hints[name]):
            values[name] = _build(hints[name], value, f"{where}{name}.", found)
        else:
            values[name] = _coerce(hints[name], value, f"{where}{name}", found)
    return None if found else kind(**values)


def _coerce(kind: Any, value: Any, where: str, found: list[str]) -> Any:
    """`value` as `kind`, or a problem. YAML reads `1e-3` as text, so numbers given as text are parsed."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _coerce(next(a for a in args if a is not type(None)), value, where, found)
    if origin is Literal:
        value = "none" if value is None and "none" in args else value
        if value in args:
            return value
        found.append(f"{where} is {value!r}; {did_you_mean(str(value), map(str, args))}")
    elif origin is tuple:
        if isinstance(value, list | tuple) and len(value) == len(args):
            return tuple(_coerce(a, v, where, found) for a, v in zip(args, value, strict=True))
        found.append(f"{where} is {value!r}; it must be a list of {len(args)} values")
    elif origin is dict:
        if isinstance(value, Mapping):
            inner = args[1]
            return {str(k): v if inner is Any else _coerce(inner, v, f"{where}.{k}", found) for k, v in value.items()}
        found.append(f"{where} is {value!r}; it must be a mapping")
    elif kind is bool:
        if isinstance(value, bool):
            return value
        found.append(f"{where} is {value!r}; it must be true or false")
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        found.append(f"{where} is {value!r}; it must be a whole number")
    elif kind is float:
        try:
            if not isinstance(value, bool):
                return float(value)
        except (TypeError, ValueError):
            pass
        found.append(f"{where} is {value!r}; it must be a number")
    elif kind is str:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        found.append(f"{where} is {value!r}; it must be text")
    return None
