"""`tools.sandbox` without a sandbox: programs run in this process. For programs that the tests wrote themselves."""

from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace

from run_here import run_here

_ONE = Lock()  # a runner seeds the whole process


@dataclass(frozen=True)
class Limits:
    cpu_s: float


class Sandbox:
    def __init__(self, *, limits, unsafe):
        self.limits = limits
        self.unsafe = unsafe

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, code, runner, inputs):
        scope = {}
        try:
            exec(code, scope)
            name = code[code.index("def ") + 4 :].partition("(")[0]
            task = SimpleNamespace(runner=runner, signature=f"def {name}(")
            with _ONE:
                return SimpleNamespace(outputs=run_here(task, scope[name], inputs))
        except Exception as fault:
            return SimpleNamespace(outputs=None, reason=f"{type(fault).__name__}: {fault}")
