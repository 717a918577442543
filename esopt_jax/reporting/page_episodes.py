"""The episodes of a run as a page holds them: a table of all, and their turns in packs that are opened on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from esopt_jax.reporting.episode import Decode
from esopt_jax.reporting.page_text import Packed, packed
from esopt_jax.rollouts.trajectory import read_trajectories
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.types import Trajectory, Turn

TEXT_LIMIT = 2_000_000
"""Characters of one prompt or answer that a page holds."""

PAGE_LIMIT = 256_000_000
"""Characters of all turns that a page holds; episodes after that are listed without their turns."""

_PACK = 1_000_000
_FILES = (("eval", True), ("gen", False))

Boards = Callable[[Trajectory], list[str | None]]
"""Of an episode: the board before its first turn, then the one after each."""


@dataclass(frozen=True)
class EpisodeTable:
    """All episodes, column by column, in the order in which they were given.

    Attributes:
        columns: name -> one value an episode. `task` indexes `tasks`; `invalid` and `truncated` count turns; `pack` and
            `place` say where its turns are, `pack` -1 that they are not in the page.
        tasks: ids, each once.
        errors: what ended an episode as an infrastructure error, by its number as text.
        packs: the turns.
    """

    columns: dict[str, list[Any]]
    tasks: list[str]
    errors: dict[str, str]
    packs: list[Packed]


def recorded_episodes(folder: RunFolder) -> Iterator[tuple[bool, Trajectory]]:
    """Every recorded episode, and whether it is held out: first those, then the population's, each by generation.

    The generation of a held-out one is the number of updates before it; in its own record it is 0.

    Raises:
        EsoptError: a file is damaged.
    """
    root = folder.trajectories(0).parent
    for kind, held_out in _FILES:
        for path in sorted(root.glob(f"{kind}_[0-9]*.jsonl.gz"), key=_number):
            for episode in read_trajectories(path):
                yield held_out, replace(episode, generation=_number(path)) if held_out else episode


def tabulate(
    episodes: Iterable[tuple[bool, Trajectory]], decode: Decode | None, boards: Boards, *, page_limit: int = PAGE_LIMIT
) -> EpisodeTable:
    """Take in all episodes, one at a time.

    Args:
        episodes: each with whether it is held out.
        decode: of the model; without it, prompts are numbers of tokens.
        boards: of an episode.
        page_limit: characters of the turns that are kept.
    """
    building = _Building(room=page_limit)
    for held_out, episode in episodes:
        building.add(held_out, episode, decode, boards)
    return building.table()


@dataclass
class _Building:
    room: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    tasks: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    packs: list[Packed] = field(default_factory=list)
    open_pack: list[Any] = field(default_factory=list)
    open_size: int = 0

    def add(self, held_out: bool, episode: Trajectory, decode: Decode | None, boards: Boards) -> None:
        if episode.error is not None:
            self.errors[str(len(self.rows))] = episode.error[:TEXT_LIMIT]
        pack, place = self.keep(episode, decode, boards) if self.room > 0 else (-1, 0)
        self.rows.append(
            {
                "held_out": int(held_out),
                "generation": episode.generation,
                "member": episode.member,
                "case": episode.case,
                "episode": episode.episode,
                "task": self.tasks.setdefault(episode.task_id, len(self.tasks)),
                "outcome": episode.outcome,
                "reward": episode.reward,
                "turns": len(episode.turns),
                "invalid": sum(turn.invalid for turn in episode.turns),
                "truncated": sum(turn.truncated for turn in episode.turns),
                "pack": pack,
                "place": place,
            }
        )

    def keep(self, episode: Trajectory, decode: Decode | None, boards: Boards) -> tuple[int, int]:
        start, *after = boards(episode)
        turns = [_turn(turn, decode, board) for turn, board in zip(episode.turns, after, strict=True)]
        size = sum(len(str(turn)) for turn in turns)
        if size > self.room:
            self.room = 0  # what follows would come in a puzzling choice
            return -1, 0
        self.room -= size
        if self.open_size + size > _PACK:
            self.close()
        self.open_pack.append({"start": start, "turns": turns})
        self.open_size += size
        return len(self.packs), len(self.open_pack) - 1

    def close(self) -> None:
        if self.open_pack:
            self.packs.append(packed(self.open_pack))
        self.open_pack, self.open_size = [], 0

    def table(self) -> EpisodeTable:
        self.close()
        names = list(self.rows[0]) if self.rows else []
        columns = {name: [row[name] for row in self.rows] for name in names}
        return EpisodeTable(columns, list(self.tasks), self.errors, self.packs)


def _turn(turn: Turn, decode: Decode | None, board: str | None) -> dict[str, Any]:
    prompt = None if decode is None else decode(turn.prompt_ids)
    return {
        "prompt": None if prompt is None else prompt[:TEXT_LIMIT],
        "read": len(turn.prompt_ids),
        "text": turn.text[:TEXT_LIMIT],
        "dropped": sum(max(0, len(text) - TEXT_LIMIT) for text in (turn.text, prompt or "")),
        "wrote": len(turn.completion_ids),
        "seconds": round(turn.seconds, 3),
        "reward": turn.reward,
        "invalid": turn.invalid,
        "truncated": turn.truncated,
        "board": board,
        "info": {name: value for name, value in turn.info.items() if name not in ("invalid", "board")},
    }


def _number(path: Path) -> int:
    return int(path.name.split("_")[1].split(".")[0])
