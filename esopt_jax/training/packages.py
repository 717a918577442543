"""Which packages esopt_jax asks for, by its own metadata, and which are there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(?P<bound>(?:[<>=!~]=?=?[^;]*)?)(?:;.*extra\s*==\s*['\"](?P<extra>[\w-]+))?"
)


@dataclass(frozen=True)
class Requirement:
    """A package that is asked for.

    Attributes:
        name: of the package.
        bound: such as `>=0.10.2`, or empty.
        extra: the extra that asks for it, None when it is always needed.
        installed: its version, None when it is missing.
    """

    name: str
    bound: str
    extra: str | None
    installed: str | None

    @property
    def met(self) -> bool:
        """Whether it is there, and not older than `bound` says."""
        if self.installed is None:
            return False
        floor = re.match(r"[>=]=\s*([\d.]+)", self.bound)
        return floor is None or _numbers(self.installed) >= _numbers(floor[1])


def requirements() -> list[Requirement]:
    """All of them; none when esopt_jax is not installed but only on the path."""
    try:
        return [parse_requirement(text) for text in metadata.requires("esopt-jax") or []]
    except metadata.PackageNotFoundError:
        return []


def parse_requirement(text: str) -> Requirement:
    """One line of a package's metadata.

    Example:
        >>> found = parse_requirement('no-such-package>=2.0; extra == "test"')
        >>> found.name, found.bound, found.extra, found.met
        ('no-such-package', '>=2.0', 'test', False)
    """
    match = _REQUIREMENT.match(text)
    if match is None:
        return Requirement(text, "", None, None)
    return Requirement(match["name"], match["bound"].strip(), match["extra"], _version(match["name"]))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without trailing zeros."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
