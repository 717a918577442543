"""Run folders for tests of pages: their files, without a run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esopt_jax.config import to_yaml
from esopt_jax.config_reader import from_dict
from esopt_jax.rollouts.trajectory import write_trajectories
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.types import Trajectory, Turn

SUDOKU = {"name": "sudoku", "prompt": "compact", "options": {"size": 4, "mask": 6}}


def turn(text: str, *, prompt: Sequence[int] = (1,), reward: float = 0.0, **fields: Any) -> Turn:
    """A turn; what is no field of it goes into its `info`."""
    known = {name: fields.pop(name) for name in ("invalid", "truncated") if name in fields}
    flags = {"invalid": False, "truncated": False, **known}
    return Turn(
        tuple(prompt), (4, 5), text, reward, seconds=0.25, info={"invalid": flags["invalid"], **fields}, **flags
    )


def episode(*turns: Turn, outcome: Any = "failure", case: int = 0, **fields: Any) -> Trajectory:
    """An episode; its reward follows from its outcome."""
    reward = {"success": 1.0, "failure": 0.0, "error": math.nan}[outcome]
    known = {"generation": 0, "member": -1, "episode": 0, "task_id": f"task-{case}", "error": None, **fields}
    return Trajectory(case=case, turns=turns, outcome=outcome, reward=reward, terminal_reward=reward, **known)


def write_run(
    path: Path,
    *,
    population: Mapping[int, Sequence[Trajectory]] | None = None,
    held_out: Mapping[int, Sequence[Trajectory]] | None = None,
    config: Mapping[str, Any] | None = None,
    summary: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """A run folder with these episodes, by generation and by updates."""
    path.mkdir(exist_ok=True)
    folder = RunFolder(path)
    settings = {"model": {"path": "builtin:sudoku-4x4"}, "env": SUDOKU, **(config or {})}
    folder.config.write_text(to_yaml(from_dict(settings)), encoding="utf-8")
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder.summary.write_text(json.dumps({"status": "finished", **(summary or {})}))
    for generation, episodes in (population or {}).items():
        write_trajectories(folder.trajectories(generation), episodes)
    for updates, episodes in (held_out or {}).items():
        write_trajectories(folder.held_out(updates), episodes)
    return path
