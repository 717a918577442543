"""An episode is shown as it is, whatever is in its texts."""

import io
import math

import pytest
from rich.console import Console

from esopt_jax.reporting.episode import draw_episode
from esopt_jax.types import Trajectory, Turn

_RED = "\x1b[31m"


def _turn(text, *, reward=0.0, invalid=False, truncated=False, **info):
    return Turn((1, 2, 3), (4, 5), text, reward, invalid, truncated, 0.25, {"invalid": invalid, **info})


def _episode(*turns, outcome="success", reward=1.0, error=None):
    return Trajectory(2, -1, 7, "toy[7]", 0, turns, outcome, reward, reward, error)


def _printed(episode, decode=None, **console):
    stream = io.StringIO()
    Console(file=stream, width=40, highlight=False, **console).print(draw_episode(episode, decode), soft_wrap=True)
    return stream.getvalue()


def test_markup_brackets_and_special_tokens_survive():
    text = "[red]a[/red] [1, 2] <|im_end|> :smile: https://x.y \\[z]"
    shown = _printed(_episode(_turn(text)), lambda ids: f"<|im_start|>user\n[b]{ids}[/b]<|im_end|>")
    assert f"    | {text}\n" in shown
    assert "    | <|im_start|>user\n    | [b](1, 2, 3)[/b]<|im_end|>\n" in shown
    assert "task toy[7] (case 7), unperturbed model, generation 2, episode 0" in shown


def test_control_characters_cannot_reach_the_terminal():
    shown = _printed(_episode(_turn("a\x1b[2Jb\rc\ud800\u2028d"), outcome="error", error="b\x07ad"))
    assert "    | a\\x1b[2Jb\\rc\\ud800\\u2028d\n" in shown and "error: b\\x07ad" in shown
    assert not {"\x1b", "\r", "\x07"} & set(shown)


def test_every_turn_says_what_came_of_it():
    episode = _episode(
        _turn("first", truncated=True, verdict="format"), _turn("second", reward=1.0), outcome="success", reward=1.0
    )
    lines = _printed(episode).splitlines()
    assert [line for line in lines if line.startswith("turn")] == ["turn 1  read 3 tokens", "turn 2  read 3 tokens"]
    assert "  wrote 2 tokens in 0.25 s, cut at rollout.max_new_tokens" in lines
    assert "  reward 0  verdict: format" in lines and "  reward 1" in lines
    assert lines[-1] == "success: reward 1 in 2 turns"


def test_a_long_line_stays_one():
    assert f"    | {'a b ' * 50}\n" in _printed(_episode(_turn("a b " * 50)))


@pytest.mark.parametrize("invalid", [True, False])
def test_invalid_is_red(invalid):
    shown = _printed(_episode(_turn("move", invalid=invalid)), force_terminal=True, color_system="standard")
    assert (f"{_RED}move" in shown) is invalid
    assert ("\n  invalid" in _printed(_episode(_turn("move", invalid=invalid)))) is invalid


def test_a_fault_has_no_reward():
    shown = _printed(_episode(_turn("x", reward=math.nan), outcome="error", reward=math.nan, error="timed out"))
    assert "  reward none\n" in shown and shown.endswith("error: timed out\n") and "nan" not in shown
