"""From the text of an answer to an idea and code.

What is asked for is a sentence and a fenced block. What comes may have chatter around it, no fence, half a fence,
several blocks or several functions. Code is what Python parses, so braces, quotes and fences in it are no trouble; an
idea is looked for outside of it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from esopt_jax.search.syntax import MAX_CODE, Unparsed, defines, parse

MAX_IDEA = 500
_MAX_STARTS, _MAX_ENDS = 20, 20
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+.-]*)[ \t]*")
_BEGINS = re.compile(r"(import|from|def|class|@\w)\b|@\w")


@dataclass(frozen=True)
class Answer:
    """What an answer says.

    Attributes:
        idea: at most 500 characters, on one line; may be empty.
        code: source that defines the function, or tries to; empty where there is none.
        problem: why the code cannot be run; empty where it parses and defines the function.
    """

    idea: str
    code: str
    problem: str


def read_answer(text: str | bytes, name: str) -> Answer:
    r"""The idea and the code of an answer that was to define the function `name`.

    Of several blocks that define it the last counts, since answers quote and correct themselves. Lines that try the
    function out are left out.

    Example:
        >>> read_answer("Idea: the first one.\n```python\ndef pick(x):\n    return {0: x}[0]\n```\nEnjoy!", "pick")
        Answer(idea='the first one.', code='def pick(x):\n    return {0: x}[0]\n', problem='')
        >>> read_answer("I cannot.", "pick").problem
        'the answer has no function pick'
    """
    text = _clean(text)
    lines = text.split("\n")
    blocks = list(_fenced(lines))
    for first, last in reversed(blocks):
        if (span := _code_span(lines, first, last, name)) is not None:
            return _found(lines, *span, name)
    tries = [(first, last) for first, last in blocks if _mentions(lines[first:last], name)]
    whole = any(not isinstance(parse(_source(lines, *block)), Unparsed) for block in tries)
    if not whole and (span := _code_span(lines, 0, len(lines), name)) is not None:
        return _found(lines, *span, name)
    if not tries and _mentions(lines, name):
        first = next((i for i, line in enumerate(lines) if _BEGINS.match(line.lstrip())), 0)
        tries = [(first, len(lines))]
    if not tries:
        return Answer(_idea(lines, ""), "", f"the answer has no function {name}")
    first, last = tries[-1]
    code = _source(lines, first, last)
    tree = parse(code)
    problem = str(tree) if isinstance(tree, Unparsed) else f"the code does not define {name} at its top level"
    return Answer(_idea(lines[:first], code), code[:MAX_CODE], problem)


def _clean(text: str | bytes) -> str:
    """Text that UTF-8 can say, with plain line ends."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")


def _fenced(lines: list[str]) -> Iterator[tuple[int, int]]:
    """(first, last) lines inside each fence; a missing closing fence is the end of the text."""
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line)
        if fence is None:
            continue
        if opened is None:
            opened = number + 1, fence[1]
        elif fence[1][0] == opened[1][0] and len(fence[1]) >= len(opened[1]):
            yield opened[0], number
            opened = (number + 1, fence[1]) if fence[2] else None  # "```python" opens: the one before was not closed
    if opened is not None and opened[0] < len(lines):
        yield opened[0], len(lines)


def _code_span(lines: list[str], first: int, last: int, name: str) -> tuple[int, int] | None:
    """The lines among these that parse and define the function, with as little as possible cut off.

    Code may begin at a line that looks like its beginning, and end before a line at the left margin: cutting within a
    function would make another function of it.
    """
    if not _mentions(lines[first:last], name):
        return None
    begins = [i for i in range(first + 1, last) if _BEGINS.match(lines[i].lstrip())]
    for start in [first, *begins[:_MAX_STARTS]]:
        margin = len(lines[start]) - len(lines[start].lstrip()) if start > first else 0
        end = last
        for _ in range(_MAX_ENDS):
            tree = parse(_source(lines, start, end))
            if not isinstance(tree, Unparsed):
                if defines(tree, name):
                    return start, end
                if (start, end) == (first, last):
                    return None  # it is all code: what is further in belongs to something else
                break
            blank = next((i for i in range(start, end) if lines[i].strip()), end) - start  # `_source` begins after them
            fault = start + blank + tree.line - 1  # the line that is no code
            ends = [i for i in range(start + 1, min(fault + 1, end)) if _at_margin(lines[i], margin)]
            if not tree.line or not ends:
                break
            end = ends[-1]
    return None


def _at_margin(line: str, margin: int) -> bool:
    return bool(line.strip()) and not line[margin : margin + 1].isspace()


def _mentions(lines: list[str], name: str) -> bool:
    return re.search(rf"\bdef\s+{re.escape(name)}\b", "\n".join(lines)) is not None


def _source(lines: list[str], first: int, last: int) -> str:
    return textwrap.dedent("\n".join(lines[first:last])).strip("\n") + "\n"


def _found(lines: list[str], first: int, last: int, name: str) -> Answer:
    code = _without_tries(_source(lines, first, last), name)
    return Answer(_idea(lines[:first], code), code, "")


def _without_tries(code: str, name: str) -> str:
    """The code without the lines that try the function out, which need not work where it runs."""
    tree = parse(code)
    assert isinstance(tree, ast.Module)
    lines = code.split("\n")
    taken = [number for node in tree.body for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)]
    for node in reversed(tree.body):
        rows = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if _tries(node, name) and all(taken.count(row) == 1 for row in (rows[0], rows[-1])):
            del lines[rows[0] - 1 : rows[-1]]
    return "\n".join(lines).rstrip("\n") + "\n"


def _tries(node: ast.stmt, name: str) -> bool:
    called = {part.func.id for part in ast.walk(node) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.Expr(value=ast.Name()):  # a word on a line of its own
            return True
        case ast.Expr():
            return not called.isdisjoint((name, "print"))
        case ast.Assign() | ast.AnnAssign() | ast.Assert() | ast.For():
            return name in called
    return False


def _idea(lines: list[str], code: str) -> str:
    """What the prose before the code says it does: after `Idea:`, within braces, or its last paragraph."""
    prose = "\n".join(line for line in lines if not _FENCE.fullmatch(line)).strip()
    if told := re.findall(r"^\W*idea\W*:\W*(.+)", prose, re.IGNORECASE | re.MULTILINE):
        found = told[-1]
    elif braces := re.findall(r"\{([^{}]*\w[^{}]*)\}", prose):
        found = braces[-1]
    elif prose:
        paragraphs = [part for part in re.split(r"\n\s*\n", prose) if re.search(r"\w", part)]
        found = paragraphs[-1] if paragraphs else ""
    else:
        tree = parse(code)
        found = "" if isinstance(tree, Unparsed) else _docstring(tree)
    return " ".join(found.split()).strip("* ")[:MAX_IDEA]


def _docstring(tree: ast.Module) -> str:
    for node in [tree, *tree.body]:
        if isinstance(node, ast.Module | ast.FunctionDef) and (text := ast.get_docstring(node)):
            return text
    return ""
