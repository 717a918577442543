"""When two programs are the same: equal syntax trees, once what does not change behaviour is taken out.

Formatting, comments, docstrings, annotations and the names of locals do not count; constants, and every name that is
seen from outside a function, do. Two programs with one key behave alike; the reverse need not hold.
"""

from __future__ import annotations

import ast
import builtins
import copy
import hashlib
import warnings
from collections.abc import Iterator

MAX_CODE = 100_000
"""Characters beyond which code is not read: the parser needs memory and stack in proportion."""

_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""All that the parser says no with; `ValueError` for null bytes and endless integers."""


class Unparsed(str):
    """Why code does not parse; `line` is where, from 1, or 0 if that is nowhere."""

    line: int

    def __new__(cls, text: str, line: int = 0) -> Unparsed:
        """The reason `text`."""
        made = super().__new__(cls, text)
        made.line = line
        return made


def parse(code: str) -> ast.Module | Unparsed:
    """The tree of some code, or why there is none."""
    if len(code) > MAX_CODE:
        return Unparsed(f"{len(code)} characters of code; at most {MAX_CODE} are read")
    try:
        with warnings.catch_warnings():  # '\d' in a text is the author's matter
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except SyntaxError as fault:
        return Unparsed(f"syntax error in line {fault.lineno}: {fault.msg}", fault.lineno or 0)
    except _FAULTS as fault:
        return Unparsed(f"unreadable code: {type(fault).__name__}")


def syntax_key(code: str) -> str:
    r"""32 hex digits over the normalised syntax tree; empty for code that does not parse.

    Example:
        >>> first = syntax_key("def f(x):\n    '''Twice.'''\n    y = 2 * x  # twice\n    return y")
        >>> first == syntax_key("def f(value: int) -> int:\n  result = (2*value)\n  return result")
        True
        >>> first == syntax_key("def f(x):\n    y = 3 * x\n    return y")
        False
    """
    tree = parse(code)
    if isinstance(tree, str):
        return ""
    try:
        normal = _normalised(tree)
        return hashlib.blake2s(ast.dump(normal, annotate_fields=False).encode(), digest_size=16).hexdigest()
    except (RecursionError, UnicodeEncodeError):
        return ""


def defines(tree: ast.Module, name: str) -> bool:
    """Whether a module has a function of that name."""
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def _normalised(tree: ast.Module) -> ast.Module:
    tree = _Stripped().visit(copy.deepcopy(tree))
    keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}
    fixed = keywords | set(dir(builtins)) | {name for node in tree.body for name in _bound_here(node)}
    for node in _outermost_functions(tree):
        _Renamed(_locals(node) - fixed).visit(node)
    return tree


def _outermost_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
        else:
            yield from _outermost_functions(child)


def _bound_here(node: ast.AST) -> Iterator[str]:
    """Names that a statement of a module binds in the module, or may bind: what functions hold is looked past."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    for part in ast.walk(node):
        yield from _bound_by(part)


def _locals(function: ast.AST) -> set[str]:
    """Names bound anywhere within a function, itself excepted, and never declared global."""
    parts = [part for part in ast.walk(function) if part is not function]
    known = {name for part in parts for name in _bound_by(part)}
    for part in parts:  # attributes of a class are seen from outside
        if isinstance(part, ast.ClassDef):
            known -= {name for statement in part.body for name in _bound_here(statement)}
    known -= {name for part in parts if isinstance(part, ast.Global) for name in part.names}
    known -= {name.name.split(".")[0] for name in parts if isinstance(name, ast.alias) and name.asname is None}
    return known - {getattr(function, "name", "")}


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=alias):
            yield alias or name.split(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


_Block = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class _Stripped(ast.NodeTransformer):
    """Without docstrings and annotations, those of a class excepted: they can be its fields."""

    def __init__(self) -> None:
        self._fields = set[int]()

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._fields.update(map(id, node.body))
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._without_docstring(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._without_docstring(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node = self.generic_visit(node)  # type: ignore[assignment]
        if id(node) in self._fields or node.value is None:
            return node
        return ast.Assign([node.target], node.value)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        node.kind = None
        return node

    def _without_docstring(self, node: _Block) -> ast.AST:
        if node.body and isinstance(node.body[0], ast.Expr) and _is_text(node.body[0].value):
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class _Renamed(ast.NodeTransformer):
    """Locals are called by the order in which they appear."""

    def __init__(self, names: set[str]) -> None:
        self._names, self._order = names, dict[str, str]()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "arg", "name", "asname", "rest"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name in self._names and not isinstance(node, ast.keyword):
                setattr(node, field, self._new(name))
        if isinstance(node, ast.alias) and node.asname is None and node.name in self._names:
            node.asname = self._new(node.name)
        if isinstance(node, ast.Nonlocal):
            node.names = [self._new(name) if name in self._names else name for name in node.names]
        return super().generic_visit(node)

    def _new(self, name: str) -> str:
        return self._order.setdefault(name, f"<{len(self._order)}>")
