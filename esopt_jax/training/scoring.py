"""From the episodes of an evaluation to its record: solve rate, interval, turns, invalid actions, faults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esopt_jax.errors import StoppedError
from esopt_jax.rollouts.fitness import common_fault
from esopt_jax.training.intervals import Interval, gain_interval, rate_interval
from esopt_jax.types import Trajectory

METRIC = "solve_rate"


@dataclass(frozen=True)
class Evaluation:
    """Score of one policy on held-out tasks.

    Attributes:
        mean: solved episodes / episodes that count.
        ci95: its 95 % interval, by resampling tasks.
        episodes: episodes that count; infrastructure errors do not.
        mean_turns: turns of such an episode.
        invalid_action_rate: share of their turns whose action the environment rejected.
        faults: episodes lost to infrastructure errors.
        solved: `[tasks]` successes of each task, in the order of `cases`.
        played: `[tasks]` episodes of each task that count.
    """

    mean: float
    ci95: Interval
    episodes: int
    mean_turns: float
    invalid_action_rate: float
    faults: int
    solved: np.ndarray
    played: np.ndarray

    def record(self) -> dict[str, Any]:
        """The part that `summary.json` holds."""
        return {
            "metric": METRIC,
            "mean": self.mean,
            "ci95": list(self.ci95),
            "episodes": self.episodes,
            "mean_turns": self.mean_turns,
            "invalid_action_rate": self.invalid_action_rate,
            "faults": self.faults,
        }

    def row(self) -> dict[str, Any]:
        """All of it, as `evaluations.jsonl` holds it; `from_row` reads it back."""
        return {**self.record(), "solved": self.solved.tolist(), "played": self.played.tolist()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Evaluation:
        """The inverse of `row`, of a line that also names its `cases`; other keys are left out.

        Raises:
            KeyError, TypeError, ValueError: something is missing, or its parts do not agree.
        """
        values = {name: row[name] for name in ("mean", "episodes", "mean_turns", "invalid_action_rate", "faults")}
        solved, played = (np.array(row[name], int) for name in ("solved", "played"))
        low, high = (float(bound) for bound in row["ci95"])
        if not solved.shape == played.shape == (len(row["cases"]),) or played.sum() != values["episodes"]:
            raise ValueError("counts of tasks do not agree")
        if not math.isclose(values["mean"], solved.sum() / played.sum()) or not low <= values["mean"] <= high:
            raise ValueError("the mean is not that of the tasks")
        return cls(ci95=(low, high), solved=solved, played=played, **values)

    def metrics(self) -> dict[str, float]:
        """The part that `metrics.jsonl` holds."""
        return {
            "eval/solve_rate": self.mean,
            "eval/ci_low": self.ci95[0],
            "eval/ci_high": self.ci95[1],
            "eval/episodes": self.episodes,
            "eval/mean_turns": self.mean_turns,
            "eval/invalid_action_rate": self.invalid_action_rate,
            "eval/faults": self.faults,
        }


def score(episodes: Sequence[Trajectory], *, cases: Sequence[int], seed: int) -> Evaluation:
    """Score the episodes of one policy.

    Args:
        episodes: all that were played, faulty ones included.
        cases: the tasks they were played on, as `Trajectory.case` names them.
        seed: of the bootstrap.

    Raises:
        StoppedError: every episode was lost to infrastructure errors.
    """
    counted = [episode for episode in episodes if episode.outcome != "error"]
    if not counted:
        raise StoppedError(f"every one of {len(episodes)} evaluation episodes failed: {common_fault(episodes)[0]}")
    position = {int(case): i for i, case in enumerate(cases)}
    played, solved = np.zeros((2, len(cases)), int)
    for episode in counted:
        played[position[episode.case]] += 1
        solved[position[episode.case]] += episode.outcome == "success"
    turns = sum(len(episode.turns) for episode in counted)
    seen = played > 0
    return Evaluation(
        mean=float(solved.sum() / len(counted)),
        ci95=rate_interval(solved[seen], played[seen], seed=seed),
        episodes=len(counted),
        mean_turns=turns / len(counted),
        invalid_action_rate=sum(turn.invalid for episode in counted for turn in episode.turns) / max(turns, 1),
        faults=len(episodes) - len(counted),
        solved=solved,
        played=played,
    )


def gain(before: Evaluation, after: Evaluation, *, seed: int) -> dict[str, Any]:
    """Difference of two evaluations on the same tasks: `{"mean", "ci95"}`, over the tasks that both could play."""
    both = (before.played > 0) & (after.played > 0)
    if not both.any():
        return {"mean": after.mean - before.mean, "ci95": [-1.0, 1.0]}
    solved = (before.solved[both], after.solved[both])
    played = (before.played[both], after.played[both])
    rates = [float(s.sum() / p.sum()) for s, p in zip(solved, played, strict=True)]
    return {"mean": rates[1] - rates[0], "ci95": list(gain_interval(solved, played, seed=seed))}
