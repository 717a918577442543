"""Call an environment's code without ever waiting for it longer than agreed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any


class HungError(Exception):
    """A call that had not returned in time. The message is one line."""


class TimedCaller:
    """Runs each call in a daemon thread of its own, which is left behind when its time is over.

    A Python thread cannot be killed; a daemon does not keep the interpreter from exiting. For one caller that waits for
    one call; `rollouts.workers` is for many at once.

    Attributes:
        timeout_s: seconds a call may take.
        count: calls so far.
        longest_s: seconds that the slowest call so far took.

    Example:
        >>> TimedCaller(5.0)("adding", sum, [1, 2])
        3
    """

    def __init__(self, timeout_s: float):
        self.timeout_s = timeout_s
        self.count = 0
        self.longest_s = 0.0

    def __call__(self, what: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The result of `function`; what it raises is raised here.

        Raises:
            HungError: it had not returned after `timeout_s`; `what` says in the message what was called.
        """
        ended: list[tuple[Any, BaseException | None]] = []

        def work() -> None:
            try:
                ended.append((function(*arguments, **options), None))
            except BaseException as fault:  # SystemExit too comes from the environment, not from us
                ended.append((None, fault))

        thread = threading.Thread(target=work, name="esopt-env-check", daemon=True)
        started = perf_counter()
        thread.start()
        thread.join(self.timeout_s)
        self.count += 1
        self.longest_s = max(self.longest_s, perf_counter() - started)
        if not ended:
            raise HungError(f"{what} had not returned after {self.timeout_s:g} s")
        result, fault = ended[0]
        if fault is not None:
            raise fault
        return result
