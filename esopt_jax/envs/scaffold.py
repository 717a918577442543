"""Write the start of an environment of one's own: a file that works as it is, and the config that trains it."""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path
from typing import NamedTuple

from esopt_jax.errors import EsoptError

TEMPLATE = Path(__file__).parent / "template"

_TAKEN = {"Observation", "Step", "Task"}
"""Names that the template imports."""


class Scaffold(NamedTuple):
    """The two files, and the name under which `env.name` finds the environment."""

    code: Path
    config: Path
    environment: str


def write_scaffold(name: str, folder: Path) -> Scaffold:
    """Write `name.py` and `name.yaml` into `folder`, or neither.

    Args:
        name: lower case, such as `my_game`; the class is then `MyGame`.
        folder: made when it is missing. The config names the file by it, so a relative one stays relative.

    Raises:
        EsoptError: a name that is none, a file that is there already, a folder that cannot be written.
    """
    factory = _class_name(name)
    made = Scaffold(folder / f"{name}.py", folder / f"{name}.yaml", f"{folder / name}.py:{factory}")
    for path in (made.code, made.config):
        if path.exists():
            raise EsoptError(f"{str(path)!r} exists and is not replaced; choose another name, or another --dir")
    code = (TEMPLATE / "environment.py").read_text(encoding="utf-8").replace("YourGame", factory)
    config = (TEMPLATE / "environment.yaml").read_text(encoding="utf-8")
    config = config.replace('"your_game.py:YourGame"', json.dumps(made.environment, ensure_ascii=False))
    config = config.replace("your_game", name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in ((made.code, code), (made.config, config)):
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as fault:
        raise EsoptError(f"cannot write to {str(folder)!r}: {fault.strerror or fault}") from None
    return made


def _class_name(name: str) -> str:
    """`my_game` -> `MyGame`."""
    factory = "".join(part.capitalize() for part in name.split("_"))
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or keyword.iskeyword(factory):
        raise EsoptError(f"{name!r} cannot name an environment; use lower-case letters, digits and _, such as my_game")
    if factory in _TAKEN:
        raise EsoptError(f"{name!r} would hide esopt_jax.types.{factory}; choose another name, such as my_{name}")
    return factory
