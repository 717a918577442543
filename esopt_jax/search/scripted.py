"""A writer without a model: templates with drawn numbers, and parents with changed ones. For tests and first runs.

What it writes follows from each request alone. It is a fair imitation of a search's conditions, not of a model: some
answers hold no program, some do not parse, some fail when they run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import NormalDist

from esopt_jax.errors import EsoptError, did_you_mean
from esopt_jax.search.answer_text import read_answer
from esopt_jax.search.draws import uniform, word
from esopt_jax.search.prompts import function_name
from esopt_jax.search.writer import Reply, Request

BODIES: dict[str, tuple[str, ...]] = {
    "construct_tsp": (
        "costs = $3[$0, $2] + NUMBER * $3[$2].mean(axis=1) - NUMBER * $3[$1, $2]\nreturn int($2[np.argmin(costs)])",
        "costs = $3[$0, $2] - NUMBER * np.sort($3[$2], axis=1)[:, :5].mean(axis=1)\nreturn int($2[np.argmin(costs)])",
    ),
    "construct_kp": (
        "scores = $2 ** NUMBER / $1 ** NUMBER\nreturn int(np.argmax(np.where($1 <= $0, scores, -np.inf)))",
        "scores = $2 - NUMBER * $1 + $2 / ($1 + NUMBER)\nreturn int(np.argmax(np.where($1 <= $0, scores, -np.inf)))",
    ),
    "construct_asp": ("return float(sum((i + NUMBER) ** NUMBER * x for i, x in enumerate($0)))",),
    "aco_tsp": (
        "return 1 / ($0 + 1e-9) ** NUMBER",
        "return np.exp(-NUMBER * $0 / $0.mean(axis=1, keepdims=True)) + 1e-9",
    ),
    "aco_cvrp": ("return (1 + NUMBER * np.asarray($2)[None] / $3) / ($0 + 1e-2) ** NUMBER",),
    "aco_bpp": ("return ((np.add.outer($0, $0) / (2 * $1)) ** NUMBER) * np.ones((len($0), len($0)))",),
}
"""Task -> bodies of its function: `$0` is its first parameter, `NUMBER` is drawn."""

_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
_FENCED = re.compile(r"```python\n(.*?)\n```", re.DOTALL)


class ScriptedWriter:
    """Writes templates, and changes the numbers in the programs that it is shown; a `writer.Writer`."""

    def __init__(self, signature: str, bodies: Sequence[str], *, broken: float = 0.1) -> None:
        """What to write.

        Args:
            signature: first line of the function.
            bodies: as in `BODIES`.
            broken: share of the answers that hold no program that works.
        """
        self._name, self._broken = function_name(signature), broken
        parameters = [part.split(":")[0].strip() for part in signature.partition("(")[2].rpartition(")")[0].split(",")]
        self._sources = [_source(signature, body, parameters) for body in bodies]

    def write(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply a request."""
        return [Reply(self._one(request)) for request in requests]

    def _one(self, request: Request) -> str:
        seed = request.seed
        if uniform(seed, "broken") < self._broken:
            return _BROKEN[word(seed, "how") % len(_BROKEN)].replace("NAME", self._name)
        prompt = str(request.messages[-1]["content"])
        parents = [code for code in _FENCED.findall(prompt) if not read_answer(code, self._name).problem]
        if parents and uniform(seed, "fresh") < 0.85:
            code = _changed(parents[word(seed, "parent") % len(parents)], seed)
            idea = "an earlier heuristic with other numbers."
        else:
            code = _drawn(self._sources[word(seed, "source") % len(self._sources)], seed)
            idea = "a formula with drawn numbers."
        return f"Idea: {idea}\n```python\n{code}\n```\n"


def scripted_writer(task: str, signature: str) -> ScriptedWriter:
    """The writer for a task.

    Raises:
        EsoptError: nothing was scripted for it.
    """
    if task not in BODIES:
        raise EsoptError(f"the scripted writer knows no task {task!r}: {did_you_mean(task, BODIES)}")
    return ScriptedWriter(signature, BODIES[task])


_BROKEN = (
    "I would rather not.",
    "Idea: a sum.\n```python\ndef NAME(*values:\n    return sum(values)\n```\n",
    "Idea: nothing.\n```python\ndef NAME(*values):\n    return 1 / 0\n```\n",
)


def _source(signature: str, body: str, parameters: Sequence[str]) -> str:
    for index, name in enumerate(parameters):
        body = body.replace(f"${index}", name)
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return f"import numpy as np\n\n\n{signature}\n{lines}"


def _drawn(source: str, seed: int) -> str:
    parts = source.split("NUMBER")
    numbers = [f"{4 * uniform(seed, 'number', index):.4f}" for index in range(len(parts) - 1)] + [""]
    return "".join(part + number for part, number in zip(parts, numbers, strict=True))


def _changed(code: str, seed: int) -> str:
    """One of the numbers of a program moved by a normal step, whose size is drawn from 0.01 to 1."""
    found = list(_NUMBER.finditer(code))
    if not found:
        return code
    match = found[word(seed, "which") % len(found)]
    size = math.exp(math.log(0.01) * uniform(seed, "size"))
    step = NormalDist().inv_cdf(min(max(uniform(seed, "step"), 1e-9), 1 - 1e-9))
    return f"{code[: match.start()]}{abs(float(match[0]) + size * step):.4f}{code[match.end() :]}"
