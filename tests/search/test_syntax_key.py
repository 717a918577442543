"""Which programs count as the same: what cannot change behaviour is ignored, and nothing else."""

import pytest

from esopt_jax.search.syntax import syntax_key

BASE = """
import numpy as np

LIMIT = 3

def helper(a, b=1):
    return a * b

def pick(x, y):
    total = 0
    for i, v in enumerate(x):
        total += v * 2.0
    f = lambda q: q + total
    return helper(max(f(z) for z in y), b=LIMIT)
"""

SAME = [
    BASE.replace("total", "s"),
    BASE.replace("(x, y)", "(first, second)").replace("(x)", "(first)").replace("in y", "in second"),
    BASE.replace("q", "other").replace("z", "each"),
    BASE.replace("def pick(x, y):", 'def pick(x: int, y: "list" = ...) -> float:\n    """A docstring."""').replace(
        ' "list" = ...', ' "list"'
    ),
    BASE.replace("    total = 0", "    total: int = 0  # nothing yet"),
    BASE.replace("2.0", "2.00").replace("\n    for", "\n\n\n    for"),
    '"""Module."""\n' + BASE,
    BASE.replace("a * b", "(a*b)").replace("(a, b=1)", "(c, b=1)").replace("(a*b)", "(c*b)"),
]
OTHER = [
    BASE.replace("2.0", "2.1"),
    BASE.replace("2.0", "2"),
    BASE.replace("= 0", "= 1"),
    BASE.replace("LIMIT = 3", "LIMIT = 4"),
    BASE.replace("max(", "min("),
    BASE.replace("b=LIMIT", "a=LIMIT"),
    BASE.replace("numpy", "scipy"),
    BASE.replace("f(z) for z", "f(total) for z"),
    BASE.replace("* 2.0", "+ 2.0"),
    BASE.replace("helper(max", "np.abs(max"),
    BASE.replace("(a, b=1)", "(b, a=1)").replace("helper(max", "helper(b=max").replace(", b=LIMIT", ", a=LIMIT"),
]


@pytest.mark.parametrize("code", SAME)
def test_the_same(code):
    assert code != BASE
    assert syntax_key(code) == syntax_key(BASE) != ""


@pytest.mark.parametrize("code", OTHER)
def test_not_the_same(code):
    assert "" != syntax_key(code) != syntax_key(BASE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x):\n import numpy\n return numpy", "def f(x):\n import scipy\n return scipy"),
        ("def f(x):\n def max(a):\n  return a\n return min(x)", "def f(x):\n def min(a):\n  return a\n return max(x)"),
        ("def f(x):\n g = lambda max: max\n return max(x)", "def f(x):\n g = lambda min: min\n return min(x)"),
        (
            "def f(x):\n def h(a, b):\n  return a - b\n return h(a=x, b=1)",
            "def f(x):\n def h(b, a):\n  return b - a\n return h(a=x, b=1)",
        ),
        ("def f(x, y):\n return x - y", "def f(x, y):\n return y - x"),
        ("def f(x):\n global a\n a = x", "def f(x):\n global b\n b = x"),
        ("def f(x):\n return x.a", "def f(x):\n return x.b"),
        ("def f(x):\n class A:\n  a = 1\n return A.a", "def f(x):\n class A:\n  b = 1\n return A.a"),
        (
            "def f(x):\n try:\n  x()\n except A as e:\n  return e",
            "def f(x):\n try:\n  x()\n except B as e:\n  return e",
        ),
    ],
)
def test_names_that_are_seen_from_outside_count(one, other):
    assert syntax_key(one) != syntax_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "def f(x):\n try:\n  x()\n except A as e:\n  return e",
            "def f(x):\n try:\n  x()\n except A as g:\n  return g",
        ),
        ("def f(x):\n import numpy as a\n return a", "def f(x):\n import numpy as b\n return b"),
        (
            "def f(x):\n n = 0\n def g():\n  nonlocal n\n  n += 1\n g()\n return n",
            "def f(x):\n m = 0\n def h():\n  nonlocal m\n  m += 1\n h()\n return m",
        ),
        (
            "def f(x):\n match x:\n  case [a, *b]:\n   return a, b",
            "def f(y):\n match y:\n  case [c, *d]:\n   return c, d",
        ),
        ("class A:\n def f(self, x):\n  return x", "class A:\n def f(me, y):\n  return y"),
    ],
)
def test_names_within_a_function_do_not(one, other):
    assert syntax_key(one) == syntax_key(other)


def test_code_that_does_not_parse_is_like_no_other():
    assert syntax_key("def f(") == ""
    assert syntax_key("x = " + "(" * 5000) == ""
    assert syntax_key("x = " + "-" * 50000 + "1") in ("", syntax_key("x = " + "-" * 50000 + "1"))
