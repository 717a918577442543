"""Where a run is, from its files alone, and that in plain lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.reporting.run_files import (
    Row,
    evaluation_rows,
    open_run,
    population_rows,
    read_config,
    read_metrics,
    read_summary,
)
from esopt_jax.training.lock import is_locked
from esopt_jax.training.run_folder import RunFolder

LOST = "running, by its summary, but no process on this machine holds its lock: killed, or running elsewhere"

NEWER = "its summary says {status} after {told} generations, but its metrics are newer"

_RECENT = 10
"""Generations whose pace the ETA goes by."""


@dataclass(frozen=True)
class RunState:
    """A run at one moment.

    Attributes:
        name: of its preset, or of its folder while there is no config yet.
        status: "starting", "running", "stopped" or "finished".
        note: why it stopped, or what is odd about its status.
        generations: how many there will be; None while there is no config yet.
        rows: all rows of its metrics so far.
    """

    name: str
    status: str
    note: str | None
    generations: int | None
    rows: list[Row]

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ("stopped", "finished")

    @property
    def population(self) -> list[Row]:
        """Rows of generations."""
        return population_rows(self.rows)

    @property
    def evaluations(self) -> list[Row]:
        """Rows of held-out evaluations."""
        return evaluation_rows(self.rows)

    @property
    def done(self) -> int:
        """Generations that are through."""
        population = self.population
        return population[-1]["generation"] + 1 if population else 0

    @property
    def faults(self) -> int:
        """Episodes lost to infrastructure errors, training and held-out."""
        return sum(row.get("faults", 0) + row.get("eval/faults", 0) for row in self.rows)

    @property
    def eta(self) -> timedelta | None:
        """Time to the last generation at the recent pace, without what follows it; None when it cannot be told."""
        left = 0 if self.generations is None else self.generations - self.done
        pace = _seconds_a_generation(self.population)
        told = self.status == "running" and left > 0 and pace is not None
        return timedelta(seconds=round(left * pace)) if told else None


def read_state(path: Path) -> RunState:
    """Where the run in `path` is. A file that is not there yet is no fault, nor is a line that is half written.

    Raises:
        EsoptError: there is no such folder, it holds no run, or a file of the run is damaged.
    """
    name = path.absolute().name
    if path.is_dir() and not any(path.iterdir()):
        return RunState(name, "starting", None, None, [])
    folder = open_run(path)
    summary, rows = read_summary(folder), read_metrics(folder)
    try:
        config = read_config(folder)
    except EsoptError:
        if summary is not None:
            raise
        return RunState(name, "starting", None, None, rows)  # the config itself may be half written
    status, note = _status(folder, summary, rows)
    return RunState(config.preset, status, note, config.es.generations, rows)


def state_lines(state: RunState) -> list[str]:
    """The state as a few lines of text."""
    lines = [f"{state.name}: {status_text(state)}", *([state.note] if state.note else [])]
    lines += [generation_line(row, state.generations) for row in state.population[-1:]]
    lines += [evaluation_line(row) for row in state.evaluations]
    return [*lines, health_text(state)] if state.rows else lines


def status_text(state: RunState) -> str:
    """Status, progress and ETA."""
    of = "" if state.generations is None else f", generation {state.done}/{state.generations}"
    return f"{state.status}{of}" + ("" if state.eta is None else f", ETA {state.eta}")


def generation_line(row: Mapping[str, Any], generations: int | None) -> str:
    """One line about one generation.

    Example:
        >>> row = {"generation": 9, "fitness/mean": 0.25, "fitness/best": 0.5, "sigma": 0.02, "tokens_per_s": 8123.4}
        >>> generation_line(row, 40)
        'generation 10/40  fitness 0.250  best 0.500  sigma 0.02  8.1k tokens/s'
    """
    of = "" if generations is None else f"/{generations}"
    scores = f"fitness {number(row, 'fitness/mean')}  best {number(row, 'fitness/best')}"
    speed = f"{number(row, 'tokens_per_s', '.1f', 1e-3)}k tokens/s"
    return f"generation {row['generation'] + 1}{of}  {scores}  sigma {number(row, 'sigma', '.3g')}  {speed}"


def evaluation_line(row: Mapping[str, Any]) -> str:
    """One line about one held-out evaluation."""
    low, high = number(row, "eval/ci_low"), number(row, "eval/ci_high")
    rate = f"held-out solve rate {number(row, 'eval/solve_rate')} ({low} .. {high})"
    return f"after {row['generation']} updates: {rate}, {number(row, 'eval/episodes', 'd')} episodes"


def health_text(state: RunState) -> str:
    """Speed, faults and memory: the last values there are."""
    parts = [f"{state.faults} faults"]
    for key, text in (("memory/host_peak_bytes", "host"), ("memory/device_peak_bytes", "device")):
        if (row := _last(state.rows, key)) is not None:
            parts.append(f"{number(row, key, '.2f', 2**-30)} GiB {text} memory")
    if (row := _last(state.rows, "abandoned_workers")) is not None and row["abandoned_workers"]:
        parts.append(f"{row['abandoned_workers']} abandoned workers")
    if (row := _last(state.rows, "tokens_per_s")) is not None:
        parts.insert(0, f"{number(row, 'tokens_per_s', '.1f', 1e-3)}k tokens/s")
    return ", ".join(parts)


def number(row: Mapping[str, Any], key: str, form: str = ".3f", scale: float = 1) -> str:
    """The value in a row times `scale`, `-` where there is none."""
    value = row.get(key)
    return "-" if value is None else format(value if scale == 1 else value * scale, form)


def _last(rows: Sequence[Row], key: str) -> Row | None:
    return next((row for row in reversed(rows) if row.get(key) is not None), None)


def _status(folder: RunFolder, summary: Mapping[str, Any] | None, rows: Sequence[Row]) -> tuple[str, str | None]:
    if summary is None:
        return "starting", None
    status, told, population = str(summary.get("status")), summary.get("generations"), population_rows(rows)
    note = summary.get("stopped_because")
    if status != "running" and told is not None and population and population[-1]["generation"] >= told:
        status, note = "running", NEWER.format(status=status, told=told)
    if status == "running" and folder.lock.exists() and not is_locked(folder.lock):
        return status, LOST
    return status, note


def _seconds_a_generation(population: Sequence[Row]) -> float | None:
    """Mean over the last generations, evaluations between them included where the rows tell the time."""
    recent = population[-_RECENT:]
    times = [row["wall_s"] for row in recent if row.get("wall_s") is not None]
    if len(times) > 1:
        return (times[-1] - times[0]) / (len(times) - 1)
    known = [row for row in recent if row.get("time/rollout_s") is not None]
    parts = [row["time/rollout_s"] + row.get("time/update_s", 0) - row.get("time/compile_s", 0) for row in known]
    return max(0.0, sum(parts) / len(parts)) if parts else None
