"""Errors that a user can act on. The command line prints them as one line and maps them to exit codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EsoptError(Exception):
    """Bad input: the message says what was wrong, the value, what is allowed and the fix. Exit code 2."""

    exit_code = 2


class StoppedError(EsoptError):
    """The run stopped through no fault of its input; what it had is kept. Exit code 3."""

    exit_code = 3


class InterruptedRunError(StoppedError):
    """A person stopped the run. Exit code 130."""

    exit_code = 130


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """A hint that names the nearest allowed word, or lists them when none is near.

    Example:
        >>> did_you_mean("sigmma", ["sigma", "alpha"])
        "did you mean 'sigma'?"
        >>> did_you_mean("zzz", ["sigma", "alpha"])
        'allowed: alpha, sigma'
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else "allowed: " + ", ".join(names)
