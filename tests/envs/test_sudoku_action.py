import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esopt_jax.envs.sudoku_action import judge, parse_action


@pytest.mark.parametrize(
    "reply",
    [
        "set 3 4 5",
        "SET 3 4 5",
        "Set 3 4 5",
        "  set 3 4 5\n",
        "\n\nset 3 4 5",
        "set  3\t4 \t 5",
        "</think>set 3 4 5",
        "<think>maybe set 1 1 1</think>\n\nset 3 4 5",
        "<think>a</think> set 1 2 3 </think>set 3 4 5",
        "set 1 1 1</think>set 3 4 5",
    ],
)
def test_accepted(reply):
    assert parse_action(reply) == ("3", "4", "5")


@pytest.mark.parametrize("reply", ["set 10 4 5", "set 0 4 5", "set 99999999999 1 1", "set 1 1 " + "9" * 10_000])
def test_numbers_out_of_range_are_still_actions(reply):
    assert parse_action(reply) == tuple(reply.split()[1:])


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " ",
        "set",
        "set 3 4",
        "set 3 4 5 6",
        "set 345",
        "set3 4 5",
        "3 4 5",
        "set 3, 4, 5",
        "set 3 4 5.",
        "set 3 4 5;",
        "`set 3 4 5`",
        "**set 3 4 5**",
        "set -3 4 5",
        "set +3 4 5",
        "set 03 4 5",
        "set 3.0 4 5",
        "set three 4 5",
        "set r3 c4 5",
        "reset 3 4 5",
        "set 3 4 5 set 1 1 1",
        "set 3 4 5\nset 1 1 1",
        "set\n3 4 5",
        "set 3 4\n5",
        "I will set 3 4 5",
        "set 3 4 5 because row 3 lacks it",
        # what the published parser accepted, or read as another move
        "set row 3 col 4 to 5",
        "r3c4 = 5",
        "fill (3,4) with 5",
        "place 3 4 5",
        "action: 3 4 5",
        '{"row": 3, "col": 4, "value": 5}',
        "Row 2: set 3 4 5",
        "1. set 3 4 5",
        "r3c4 to r3c5 7",
        "The first 3 rows have 4 blanks and 5 digits.",
        # an unfinished or empty thought
        "<think>set 3 4 5",
        "<think>set 3 4 5</think>",
        "set 3 4 5</think>",
        "<think></think>",
        "</think>I say set 3 4 5",
        # look-alikes: long s, full-width, Arabic and superscript digits, a non-breaking space
        "\u017fet 3 4 5",
        "set \uff13 4 5",
        "set \u0663 4 5",
        "set \u00b3 4 5",
        "set\u00a03 4 5",
        "s\u0000et 3 4 5",
        "set 3 4 5\u0000",
    ],
)
def test_rejected(reply):
    assert parse_action(reply) is None


@settings(deadline=None, max_examples=300, derandomize=True)
@given(
    st.one_of(
        st.text(),
        st.text(alphabet="set 0123456789\t\n</think>SET"),
        st.from_regex(r"(?i)\s*set[ \t]+\d+[ \t]+\d+[ \t]+\d+\s*"),
    )
)
def test_whatever_is_accepted_is_one_whole_action(reply):
    action = parse_action(reply)
    if action is not None:
        words = reply.rpartition("</think>")[2].split()
        assert words[0].lower() == "set"
        assert tuple(words[1:]) == action
        assert all(word.isascii() and word.isdigit() for word in action)


@pytest.mark.parametrize(
    ("reply", "verdict", "cell", "digit"),
    [
        ("set 1 3 3", "placed", 2, "3"),
        ("set 1 3 1", "placed", 2, "1"),  # wrong, and accepted all the same
        ("set 4 1 4", "filled", 12, ""),
        ("set 1 1 1", "given", 0, ""),
        ("set 5 1 1", "range", -1, ""),
        ("set 1 5 1", "range", -1, ""),
        ("set 1 3 5", "range", -1, ""),
        ("set 0 1 1", "range", -1, ""),
        ("set 1 1 0", "range", -1, ""),  # range comes before given
        ("set 12 1 1", "range", -1, ""),
        ("set 1 3", "format", -1, ""),
    ],
)
def test_rules_apply_in_their_order(reply, verdict, cell, digit):
    givens, board = "12.434122143.321", "12.4341221434321"
    assert judge(reply, board, givens=givens, size=4) == (verdict, cell, digit)


def test_nine_is_in_range_at_size_9():
    givens = "." * 81
    assert judge("set 9 9 9", givens, givens=givens, size=9) == ("placed", 80, "9")
    assert judge("set 9 9 10", givens, givens=givens, size=9).verdict == "range"
