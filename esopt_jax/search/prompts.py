"""What the language model is told. Operators as in EoH (Liu et al., 2024); the words are ours.

i1 designs from nothing; e1 and e2 explore with several parents; m1 and m2 modify one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from esopt_jax.search.program import Operator, Program
from esopt_jax.types import Message

WANTED: dict[Operator, str] = {
    "i1": "Design a heuristic for this task from scratch.",
    "e1": "Design a new heuristic whose form has as little as possible in common with these.",
    "e2": (
        "First find the idea that these share. Then design a new heuristic that is built on that idea, but works in "
        "another way than each of them."
    ),
    "m1": "Change this heuristic into a new one: keep what makes it work, and give it another form.",
    "m2": (
        "Find the parameters that decide how this heuristic weighs things. Then write it with other settings of those "
        "parameters."
    ),
}

_TASK = """\
You write heuristics in Python. The task:

{description}

Write a function that begins with this line:

{signature}
"""

_CONTRACT = """\
Answer in this form and add nothing else:
1. One line that begins with "Idea:" and says in one sentence how your heuristic decides.
2. One ```python block with the function {name}, its imports, and helper functions if it needs any. NumPy is there.
"""

_PARENT = """\
Heuristic {number}. Idea: {idea}
```python
{code}
```
"""


class Brief(Protocol):
    """What a prompt needs to know of a task, as `search.tasks.task.Task` has it."""

    @property
    def signature(self) -> str:
        """First line of the function."""
        ...

    @property
    def description(self) -> str:
        """What it must do."""
        ...


def function_name(signature: str) -> str:
    """The name in the first line of a function.

    Example:
        >>> function_name("def pick(x, y):")
        'pick'
    """
    return signature.removeprefix("def ").partition("(")[0].strip()


def write_prompt(brief: Brief, operator: Operator, parents: Sequence[Program]) -> tuple[Message, ...]:
    """The messages that ask for one program.

    Args:
        brief: the task.
        operator: what is asked for.
        parents: the programs to start from; none for i1.
    """
    parts = [_TASK.format(description=brief.description, signature=brief.signature)]
    parts += [
        _PARENT.format(number=number, idea=parent.idea or "not told.", code=parent.code.rstrip("\n"))
        for number, parent in enumerate(parents, 1)
    ]
    parts += [WANTED[operator] + "\n", _CONTRACT.format(name=function_name(brief.signature))]
    return ({"role": "user", "content": "\n".join(parts)},)
