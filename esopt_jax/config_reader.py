"""From a preset or a YAML file to a validated `Config`.

Precedence: defaults < preset or file < `--set section.key=value`. Unknown keys are errors that name the nearest right
one, and everything that is wrong is said at once, so that a user fixes a file once.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from esopt_jax.config import Config
from esopt_jax.config_problems import problems
from esopt_jax.config_values import coerce, one_line, parse_yaml, shown
from esopt_jax.errors import EsoptError, did_you_mean

T = TypeVar("T")
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
    tree = read_tree(path, overrides)
    tree.setdefault("preset", path.stem)
    return from_dict(tree)


def read_tree(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The mapping in a YAML file, with `section.key=value` overrides applied; of any schema.

    Raises:
        EsoptError: an unreadable file, one that holds no mapping, or an override of another form.
    """
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as fault:
        raise EsoptError(one_line(f"cannot read {path}: {fault}")) from None
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        fix = "it must hold a mapping such as 'es: {sigma: 0.01}'"
        raise EsoptError(one_line(f"{path} holds {type(tree).__name__}; {fix}"))
    for override in overrides:
        _apply_override(tree, override)
    return tree


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
    value = parse_value(text)
    node = tree
    *sections, leaf = key.strip().split(".")
    for name in sections:
        child = node.setdefault(name, {})
        if not isinstance(child, dict):
            raise EsoptError(f"--set {override!r}: {name!r} is not a section")
        node = child
    node[leaf] = value


def parse_value(text: str) -> Any:
    """A value as it stands behind `=` on a command line: YAML, or the text itself where that is none.

    Example:
        >>> parse_value("[1, 2]"), parse_value("a: b: c")
        ([1, 2], 'a: b: c')
    """
    try:
        return parse_yaml(text)
    except ValueError:
        return text


def from_dict(tree: Mapping[str, Any]) -> Config:
    """A validated `Config` from a nested mapping; missing keys take their defaults.

    Raises:
        EsoptError: with every problem of the mapping in one message.
    """
    return build(Config, tree, problems)


def build(kind: type[T], tree: Mapping[str, Any], problems: Callable[[T], list[str]]) -> T:
    """A validated config of the frozen dataclass `kind` from a nested mapping; missing keys take their defaults.

    Raises:
        EsoptError: with every unknown key and wrong type in one message, or else everything that `problems` finds.
    """
    found: list[str] = []
    config = _build(kind, tree, "", found)
    if not found:
        found = problems(config)
    if found:
        raise EsoptError(one_line("; ".join(found)))
    assert isinstance(config, kind)
    return config


def _build(kind: type, tree: Any, where: str, found: list[str]) -> Any:
    if not isinstance(tree, Mapping):
        found.append(f"{where.rstrip('.') or 'the config'} is {shown(tree)}; it must be a section with keys")
        return None
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in hints:
            key = name if isinstance(name, str) else shown(name)
            found.append(f"unknown key '{where}{key}': {did_you_mean(key, hints)}")
        elif dataclasses.is_dataclass(hints[name]):
            values[name] = _build(hints[name], value, f"{where}{name}.", found)
        else:
            values[name] = coerce(hints[name], value, f"{where}{name}", found)
    return None if found else kind(**values)
