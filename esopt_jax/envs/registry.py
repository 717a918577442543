"""Find an environment by name and build it from the options of a config.

A name is built in (`sudoku`), a factory in an installed module (`package.module:factory`) or in a file
(`path/to/file.py:factory`). A factory is any callable that returns an environment, such as its class.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.types import Environment

BUILT_IN = {
    "sudoku": "esopt_jax.envs.sudoku:Sudoku",
    "echo": "esopt_jax.envs.echo:Echo",
    "oneword": "esopt_jax.envs.oneword:OneWord",
}
METHODS = ("tasks", "reset", "step")


def make_environment(name: str, *, prompt: str | None = None, options: Mapping[str, Any] | None = None) -> Environment:
    """Build the environment `name`.

    Args:
        name: built-in name, `package.module:factory` or `file.py:factory`.
        prompt: passed on if the factory has a parameter of that name.
        options: keyword arguments of the factory.

    Raises:
        EsoptError: unknown name, an import that fails, options that are unknown, missing or refused by the factory, or
            a result that is not an environment.

    Example:
        >>> len(make_environment("sudoku", prompt="compact", options={"size": 4, "mask": 6}).tasks("eval")) > 500
        True
    """
    factory = _find_factory(name)
    options = dict(options or {})
    parameters = _parameters(factory)
    if "prompt" in options:
        raise EsoptError("env.options.prompt is set; set env.prompt instead")
    if prompt is not None and "prompt" in parameters:
        options["prompt"] = prompt
    _check_options(name, options, parameters)
    try:
        environment = factory(**options)
    except (EsoptError, ValueError, TypeError) as fault:
        raise EsoptError(f"environment {name!r}: {_one_line(fault)}") from fault
    except (Exception, SystemExit) as fault:
        raise EsoptError(f"environment {name!r} could not be built: {_describe(fault)}") from fault
    missing = [method for method in METHODS if not callable(getattr(environment, method, None))]
    if missing:
        kind = type(environment).__name__
        raise EsoptError(
            f"environment {name!r} returned {kind}, which lacks {', '.join(missing)}; it needs {', '.join(METHODS)}"
        )
    bar = getattr(environment, "success_at", 1.0)
    if isinstance(bar, bool) or not isinstance(bar, int | float) or not math.isfinite(bar):
        raise EsoptError(f"environment {name!r}: success_at is {bar!r}; it must be a finite number, such as 1.0")
    return environment


def _find_factory(name: str) -> Callable[..., Any]:
    where, colon, attribute = BUILT_IN.get(name, name).rpartition(":")
    if not colon:
        raise EsoptError(
            f"unknown environment {name!r}; {did_you_mean(name, BUILT_IN)}; "
            "your own is package.module:factory or file.py:factory"
        )
    if not where or not attribute:
        raise EsoptError(f"environment {name!r} is not of the form package.module:factory or file.py:factory")
    module = _load_file(name, Path(where)) if where.endswith(".py") else _load_module(name, where)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        state = "has no" if factory is None else "has a non-callable"
        raise EsoptError(f"environment {name!r}: {where} {state} {attribute!r}; {did_you_mean(attribute, public)}")
    return factory


def _load_module(name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as fault:
        if fault.name is not None and (where == fault.name or where.startswith(fault.name + ".")):
            raise EsoptError(
                f"environment {name!r}: no module {where!r} is installed; for a file use file.py:factory"
            ) from None
        _refuse(name, where, fault)
    except (Exception, SystemExit) as fault:
        _refuse(name, where, fault)


def _load_file(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise EsoptError(
            f"environment {name!r}: file {str(path)!r} does not exist (paths start at {str(Path.cwd())!r})"
        )
    unique = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"esopt_env_{path.stem}_{unique}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look a class up by the name of its module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as fault:
        del sys.modules[spec.name]
        _refuse(name, str(path), fault)
    return module


def _refuse(name: str, where: str, fault: BaseException) -> NoReturn:
    raise EsoptError(f"environment {name!r}: importing {where} failed with {_describe(fault)}") from fault


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (ValueError, TypeError):  # some C callables have no signature; they check their own arguments
        return {"options": inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)}


def _check_options(name: str, options: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Every unknown option and every missing one, in one message."""
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {key: value for key, value in parameters.items() if value.kind in by_keyword}
    found = []
    if not any(value.kind is inspect.Parameter.VAR_KEYWORD for value in parameters.values()):
        for key in options:
            if key not in named:
                hint = did_you_mean(key, named.keys() - {"prompt"}) if named.keys() - {"prompt"} else "it takes none"
                found.append(f"unknown option {key!r}: {hint}")
    for key, value in named.items():
        if value.default is inspect.Parameter.empty and key not in options:
            found.append(f"option {key!r} is required; set env.options.{key}")
    if found:
        raise EsoptError(f"environment {name!r}: " + "; ".join(found))


def _describe(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {_one_line(fault)}"


def _one_line(fault: BaseException) -> str:
    return " ".join(str(fault).split())
