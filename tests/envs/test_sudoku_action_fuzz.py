"""The action parser beside a second one, written from the grammar's words and by hand."""

import string

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from esopt_jax.envs.sudoku_action import judge, parse_action

SETTINGS = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
lengths = pytest.mark.parametrize("examples", [500, pytest.param(10_000, marks=pytest.mark.slow)])

END = "</think>"


def oracle(reply: str) -> tuple[str, str, str] | None:
    """`set`, then three times blanks and a number, with white space around it and nothing else."""
    at = reply.rfind(END)
    text = reply[at + len(END) :] if at >= 0 else reply
    left, right = 0, len(text)
    while left < right and text[left].isspace():
        left += 1
    while right > left and text[right - 1].isspace():
        right -= 1
    text = text[left:right]
    if [c in pair for c, pair in zip(text[:3], ("sS", "eE", "tT"), strict=False)] != [True] * 3:
        return None
    numbers, i = [], 3
    for _ in range(3):
        start = i
        while i < len(text) and text[i] in (" ", "\t"):
            i += 1
        if i == start:
            return None
        start = i
        while i < len(text) and "0" <= text[i] <= "9":
            i += 1
        number = text[start:i]
        if not number or (number[0] == "0" and number != "0"):
            return None
        numbers.append(number)
    return tuple(numbers) if i == len(text) else None


blanks = st.text(alphabet=" \t", min_size=1, max_size=3)
spaces = st.text(alphabet=" \t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000", max_size=3)
digits = st.text(alphabet=string.digits, max_size=4)
number = st.integers(0, 10**12).map(str)
word = st.sampled_from(["set", "SET", "Set", "sEt", "seT"])
thoughts = st.one_of(st.just(""), st.text(max_size=20).map(lambda text: f"{text}{END}"))

moves = st.tuples(thoughts, spaces, word, blanks, number, blanks, number, blanks, number, spaces)
almost = st.lists(
    st.one_of(
        word,
        blanks,
        digits,
        number,
        st.just(END),
        st.just("<think>"),
        spaces,
        st.sampled_from(list("ſｓ³٣３+-.,;:0`*\x00")),
    ),
    max_size=12,
).map("".join)
WRONG = ["ſet", "ｓet", "st", "", "+1", "-1", "1.", "01", "00", "٣", "３", "³", "\n", "\u00a0", ",", " \n", "1_0"]


@st.composite
def nearly(draw):
    """A move of which one part is none."""
    parts = list(draw(moves))
    parts[draw(st.integers(2, 8))] = draw(st.sampled_from(WRONG))
    return "".join(parts)


anything = st.one_of(st.text(), st.text(alphabet="setSET 0123\t\n</think>"), almost, moves.map("".join))


@st.composite
def damaged(draw):
    """A move with one character taken out, put in or changed."""
    text = "".join(draw(moves))
    at = draw(st.integers(0, len(text) - 1))
    new = draw(st.one_of(st.just(""), st.characters(), st.sampled_from(list("0 \tsſ³٣\n"))))
    return text[:at] + new + text[at + draw(st.integers(0, 1)) :]


@lengths
def test_both_parsers_say_the_same_of_any_text(examples):
    accepted = []

    @settings(SETTINGS, max_examples=examples)
    @given(st.one_of(anything, damaged(), nearly()))
    @example("set 1 1 1" + "9" * 10_000)
    @example("set " * 10_000)
    @example(f"{END * 3}set 1 1 1")
    def run(reply):
        assert parse_action(reply) == oracle(reply)
        accepted.append(oracle(reply) is not None)

    run()
    assert 0.1 < sum(accepted) / len(accepted) < 0.9, "the replies must be of both kinds"


def test_one_wrong_part_is_one_too_many():
    for position in range(7):
        for wrong in WRONG:
            parts = ["set", " ", "3", "\t", "4", "  ", "5"]
            parts[position] = wrong
            assert parse_action("".join(parts)) is None and oracle("".join(parts)) is None, parts


@lengths
def test_every_move_of_the_grammar_is_read_as_it_is_written(examples):
    @settings(SETTINGS, max_examples=examples)
    @given(moves)
    def run(parts):
        _, _, _, _, row, _, column, _, value, _ = parts
        assert parse_action("".join(parts)) == (row, column, value)

    run()


@lengths
@pytest.mark.parametrize("size", [4, 9])
def test_the_verdict_follows_from_the_move_and_the_board(size, examples):
    cells = st.text(alphabet=".." + string.digits[1 : size + 1], min_size=size * size, max_size=size * size)
    small = st.integers(0, size + 2)
    replies = st.one_of(anything, st.tuples(small, small, small).map(lambda move: "set {} {} {}".format(*move)))

    @settings(SETTINGS, max_examples=examples)
    @given(replies, cells, st.sets(st.integers(0, size * size - 1)))
    def run(reply, board, hidden):
        givens = "".join("." if i in hidden else cell for i, cell in enumerate(board))
        verdict, cell, digit = judge(reply, board, givens=givens, size=size)
        move = oracle(reply)
        if move is None:
            assert (verdict, cell, digit) == ("format", -1, "")
            return
        row, column, value = (int(text) if len(text) < 5 else 10**5 for text in move)
        if not all(1 <= n <= size for n in (row, column, value)):
            assert (verdict, cell, digit) == ("range", -1, "")
            return
        assert cell == (row - 1) * size + column - 1
        expected = "given" if givens[cell] != "." else "filled" if board[cell] != "." else "placed"
        assert (verdict, digit) == (expected, str(value) if expected == "placed" else "")

    run()
