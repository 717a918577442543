"""Answers of all shapes give the code that was meant, and nothing makes the reader fail."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esopt_jax.search.answer_text import MAX_IDEA, read_answer
from esopt_jax.search.syntax import syntax_key

CODE = '''\
import numpy as np


def helper(x):
    return {"a": x, **{1: {2, 3}}}


def pick(x, y):
    """Not an {idea}."""
    text = f"{x!r:>{10}} {{}} ```"
    return helper({k: v for k, v in zip(x, y)})[text]
'''
IDEA = "take the {largest} ratio"


@pytest.mark.parametrize(
    "text",
    [
        f"Idea: {IDEA}\n```python\n{CODE}```",
        f"Sure! Here it is.\n\nIdea: {IDEA}\n\n```python\n{CODE}```\nThis returns {{'a': 1}}. Enjoy!",
        f"Idea: {IDEA}\n```python\n{CODE}",
        f"Idea: {IDEA}\n```\n{CODE}\n```",
        f"Idea: {IDEA}\n~~~ py\n{CODE}\n~~~",
        f"Idea: {IDEA}\n{CODE}",
        f"Idea: {IDEA}\n{CODE}\nThis code takes the largest.",
        f"Idea: {IDEA}\nHere is the code:\n\n{CODE}\nAnd this is how it's used: pick(1, 2)",
        f"Idea: {IDEA}\r\n```python\r\n" + CODE.replace("\n", "\r\n") + "```\r\n",
        f"**Idea:** {IDEA}\n\n  ```python\n" + "".join(f"  {line}\n" for line in CODE.splitlines()) + "  ```",
        f"```python\ndef pick(x, y):\n    return 0\n```\nNo:\nIdea: {IDEA}\n```python\n{CODE}```\n```\nprint(1)\n```",
        f"Idea: {IDEA}\n```python\n{CODE}\nUse it well.\n```",
        f"Idea: {IDEA}\n{CODE}\n" + "This takes the largest (of all.\n" * 200,
        f"Idea: {IDEA}\n{CODE}\nEnjoy\nor not, {{as you like\n- one\n- two: 'three\n",
        f"Idea: {IDEA}\n```text\nnot code\n```\n```python\n{CODE}```",
        f"Idea: {IDEA}\n```python\nimport nothing\n```python\n{CODE}```",
    ],
)
def test_the_code_and_the_idea_are_found(text):
    answer = read_answer(text, "pick")
    assert answer.problem == ""
    assert syntax_key(answer.code) == syntax_key(CODE)
    assert answer.idea == IDEA


@pytest.mark.parametrize(
    ("prose", "idea"),
    [
        ("{Largest ratio first.}", "Largest ratio first."),
        ("Let me think.\n\nLargest ratio\nfirst.", "Largest ratio first."),
        ("", "Not an {idea}"),
        ("Idea: " + "long " * 1000, ("long " * 1000)[:MAX_IDEA]),
    ],
)
def test_an_idea_is_looked_for_outside_the_code(prose, idea):
    assert read_answer(f"{prose}\n```python\n{CODE}```", "pick").idea.rstrip(". ") == idea.rstrip(". ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the answer has no function pick"),
        ("I cannot.", "the answer has no function pick"),
        ("```python\ndef picker(x):\n    return 1\n```", "the answer has no function pick"),
        ("```python\ndef pick(x):\n    return (1,\n```", "syntax error in line 2"),
        ("```python\ndef pick(x):\n    if x:\n        return", ""),
        ("def pick(x):\n    return [1, 2", "syntax error"),
        ("def pick(x):\n" + "    x = x + 1\n" * 8000 + "    return x", "112026 characters of code"),
        ("```python\nclass A:\n    def pick(self):\n        return 1\n```", "does not define pick at its top level"),
        ("```python\ndef pick(x):\n    return " + "(" * 3000 + "\n```", ""),
        ("```python\ndef pick(x):\n    return " + "9" * 6000 + "\n```", ""),
        ("```python\ndef pick(x):\n    return '\x00'\n```", ""),
    ],
)
def test_what_is_no_program_says_why(text, problem):
    answer = read_answer(text, "pick")
    assert problem in answer.problem


def test_a_function_that_was_cut_off_is_not_made_shorter():
    whole = "def pick(x):\n    y = x + 1\n    return [y,\n            x]\n"
    for end in range(len("def pick(x):\n    y = x + 1\n    return ["), len(whole) - 2):
        answer = read_answer("```python\n" + whole[:end], "pick")
        assert answer.problem.startswith("syntax error")


@pytest.mark.parametrize(
    "tries",
    [
        "print(pick([1], [2]))",
        "if __name__ == '__main__':\n    values = [1]\n    print(pick(values, values))",
        "result = pick([1],\n              [2])\nprint(result)",
        "assert pick([1], [2]) == 3",
        "for i in range(3):\n    print(pick([i], [i]))",
    ],
)
def test_lines_that_try_the_function_are_left_out(tries):
    answer = read_answer(f"```python\n{CODE}\n{tries}\n```", "pick")
    assert syntax_key(answer.code) == syntax_key(CODE)


NEEDS = """\
import numpy as np
np.seterr(all='ignore')
TABLE = np.arange(3)


def pick(x):
    return TABLE[x] + LATER


LATER = 2; print(LATER)
"""


def test_a_constant_below_blank_lines_is_kept():
    answer = read_answer("```python\n\n\n\nTABLE = 3\n\ndef pick(x):\n    return TABLE\nUse it well.\n```", "pick")
    assert answer.code == "TABLE = 3\n\ndef pick(x):\n    return TABLE\n"


def test_what_the_function_needs_is_kept():
    assert read_answer(f"```python\n{NEEDS}```", "pick").code == NEEDS


def test_bytes_and_lone_surrogates_become_text_that_utf8_can_say():
    answer = read_answer(b"Idea: caf\xe9.\n```python\ndef pick(x):\n    return '\xff'\n```", "pick")
    assert answer.problem == "" and "\ufffd" in answer.code
    answer = read_answer("Idea: \ud800.\n```python\ndef pick(x):\n    return '\udfff'\n```", "pick")
    (answer.idea + answer.code).encode()
    assert answer.problem == ""


FRAGMENTS = [
    "```",
    "```python",
    "~~~",
    "{",
    "}",
    "def pick(x):",
    "    return {x}",
    "Idea: a",
    "@",
    "f'{x'",
    '"""',
    "\\",
    "\n",
]


@given(
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8)), max_size=14), st.sampled_from(["\n", " ", ""])
)
def test_anything_is_read(parts, between):
    answer = read_answer(between.join(parts), "pick")
    (answer.idea + answer.code).encode()
    if not answer.problem:
        assert any(isinstance(n, ast.FunctionDef) and n.name == "pick" for n in ast.parse(answer.code).body)


@given(
    st.text(st.characters(exclude_characters="`~", exclude_categories=["Cs"]), max_size=40),
    st.text(st.characters(exclude_characters="`~", exclude_categories=["Cs"]), max_size=40),
)
def test_chatter_around_a_block_does_no_harm(before, after):
    text = f"{before}\n```python\n{CODE}```\n{after}"
    assert syntax_key(read_answer(text, "pick").code) == syntax_key(CODE)
