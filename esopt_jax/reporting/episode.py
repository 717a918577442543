"""One episode as text for a terminal, turn by turn: what the agent read, what it wrote, what came of it.

Everything is shown as it is: special tokens and brackets are text here, never markup, and control characters, which a
model may write as well as any other, are shown as escapes.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from esopt_jax.types import Trajectory, Turn

if TYPE_CHECKING:
    from rich.text import Text

Decode = Callable[[tuple[int, ...]], str]
"""Token ids to text."""

_OUTCOMES = {"success": "bold green", "failure": "bold yellow", "error": "bold red"}
_MARGIN = "    | "


def draw_episode(episode: Trajectory, decode: Decode | None) -> Text:
    """The whole episode; print it with `soft_wrap=True`, so that a long line stays one.

    Args:
        episode: played or read from a file.
        decode: of the model that played; without it, what the agent read is a number of tokens.
    """
    from rich.text import Text

    text = Text().append(_title(episode), style="bold")
    for number, turn in enumerate(episode.turns, 1):
        text.append(f"\n\nturn {number}", style="bold cyan")
        _draw_turn(text, turn, decode)
    text.append("\n\n").append(_verdict(episode), style=_OUTCOMES[episode.outcome])
    return text


def visible(text: str) -> str:
    r"""`text` with control characters, lone surrogates and unusual line breaks as escapes.

    Example:
        >>> visible("[red]\x1b[31m\n")
        '[red]\\x1b[31m\n'
    """
    return "".join(
        char.encode("unicode_escape").decode()
        if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
        else char
        for char in text
    )


def _draw_turn(text: Text, turn: Turn, decode: Decode | None) -> None:
    text.append(f"  read {len(turn.prompt_ids)} tokens", style="dim")
    if decode is not None:
        _draw_block(text, decode(turn.prompt_ids), "dim")
    text.append(f"\n  wrote {len(turn.completion_ids)} tokens in {turn.seconds:.2f} s", style="dim")
    if turn.truncated:
        text.append(", cut at rollout.max_new_tokens", style="yellow")
    _draw_block(text, turn.text, "red" if turn.invalid else "green")
    if turn.invalid:
        text.append("\n  invalid", style="bold red")
    text.append(f"\n  reward {_number(turn.reward)}", style="bold" if turn.reward else "")
    if said := _said(turn.info):
        text.append(f"  {said}", style="dim")


def _draw_block(text: Text, block: str, style: str) -> None:
    for line in visible(block).split("\n"):
        text.append(f"\n{_MARGIN}", style="dim").append(line, style=style)


def _title(episode: Trajectory) -> str:
    who = "unperturbed model" if episode.member < 0 else f"member {episode.member}"
    where = f"generation {episode.generation}, episode {episode.episode}"
    return f"task {visible(episode.task_id)} (case {episode.case}), {who}, {where}"


def _verdict(episode: Trajectory) -> str:
    if episode.outcome == "error":
        return f"error: {visible(episode.error or 'unknown')}"
    turns = len(episode.turns)
    return f"{episode.outcome}: reward {_number(episode.reward)} in {turns} turn{'' if turns == 1 else 's'}"


def _said(info: Mapping[str, Any]) -> str:
    """What the environment added, but for what is shown already."""
    return ", ".join(visible(f"{key}: {value}") for key, value in info.items() if key != "invalid")


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:g}"
