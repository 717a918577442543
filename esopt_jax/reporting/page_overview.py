"""What a page says of a run as a whole: what was run, what came of it, and how it went, generation by generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from esopt_jax.config import Config, to_yaml
from esopt_jax.reporting.run_files import Row
from esopt_jax.reporting.run_state import RunState, number, status_text

Fact = tuple[str, str]
"""A label and what it says."""


def overview(state: RunState, config: Config, summary: Mapping[str, Any]) -> dict[str, Any]:
    """All of it, ready for JSON.

    Args:
        state: where the run is.
        config: of the run.
        summary: its `summary.json`; empty where there is none yet.
    """
    return {
        "name": state.name,
        "description": config.description,
        "status": state.status,
        "progress": status_text(state).removeprefix(state.status).removeprefix(", "),
        "note": state.note,
        "results": _results(state, summary),
        "settings": _settings(config),
        "config": to_yaml(config),
        "charts": charts(state.rows),
    }


def charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What is drawn over generations; a chart or a line without a single number is left out.

    Example:
        >>> rows = [{"generation": 0, "sigma": 0.5, "reward": None}, {"generation": 1, "sigma": 0.25}]
        >>> charts(rows)
        [{'title': 'sigma', 'lines': [{'name': 'sigma', 'x': [0, 1], 'y': [0.5, 0.25]}]}]
    """
    drawn = [
        {"title": title, "lines": [line for of in lines if (line := _line(rows, *of))]} for title, lines in _CHARTS
    ]
    return [chart for chart in drawn if chart["lines"]]


_CHARTS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("held-out solve rate", (("solve rate, 95 % interval", "eval/solve_rate", "eval/ci_low", "eval/ci_high"),)),
    ("fitness of the population", (("mean", "fitness/mean"), ("best", "fitness/best"))),
    ("reward of an episode", (("mean", "reward"),)),
    ("sigma", (("sigma", "sigma"),)),
    ("turns of an episode", (("population", "turns/mean"), ("held-out", "eval/mean_turns"))),
    ("share of invalid actions", (("population", "invalid_action_rate"), ("held-out", "eval/invalid_action_rate"))),
)
"""Title, then for each line its name, its metric and those of its interval."""


def _line(rows: Sequence[Row], name: str, key: str, low: str = "", high: str = "") -> dict[str, Any] | None:
    known = [row for row in rows if row.get(key) is not None]
    if not known:
        return None
    line = {"name": name, "x": [row["generation"] for row in known], "y": [row[key] for row in known]}
    bounds = {"low": [row.get(low) for row in known], "high": [row.get(high) for row in known]}
    return {**line, **bounds} if low else line


def _results(state: RunState, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Numbers worth a glance: each has a label, the value and what it is to be read with."""
    found = [
        _rate("held-out solve rate, before", summary.get("base"), "0 updates"),
        _rate("held-out solve rate, after", summary.get("final"), f"{state.generations} updates"),
        _rate("gain, paired by task", summary.get("gain"), "", sign="+"),
        _rate("best of random perturbations", summary.get("best_random"), "no update"),
    ]
    if not summary.get("final") and (rows := state.evaluations):
        row = rows[-1]
        low, high = number(row, "eval/ci_low"), number(row, "eval/ci_high")
        note = f"95 % interval {low} .. {high}, {row['generation']} updates"
        found.append({"label": "held-out solve rate, so far", "value": number(row, "eval/solve_rate"), "note": note})
    plain = (
        ("training episodes", number(summary, "train_episodes", ",d"), "played by the population"),
        ("tokens per second", number(summary, "tokens_per_s", ",.0f"), "generated in rollouts"),
        ("time", _duration(summary.get("wall_s")), "hours:minutes:seconds"),
        ("faults", str(state.faults), "episodes lost to infrastructure errors"),
    )
    return [each for each in found if each] + [
        {"label": label, "value": value, "note": note} for label, value, note in plain if value != "-"
    ]


def _rate(label: str, record: Any, note: str, *, sign: str = "") -> dict[str, Any] | None:
    if not isinstance(record, Mapping) or not isinstance(record.get("mean"), int | float):
        return None
    low, high = record.get("ci95") or (None, None)
    parts = [note] if note else []
    if low is not None and high is not None:
        parts.insert(0, f"95 % interval {low:{sign}.3f} .. {high:{sign}.3f}")
    if record.get("episodes"):
        parts.append(f"{record['episodes']} episodes")
    return {"label": label, "value": f"{record['mean']:{sign}.3f}", "note": ", ".join(parts)}


def _settings(config: Config) -> list[Fact]:
    """The few lines of the config that say what kind of run this is."""
    es, rollout = config.es, config.rollout
    options = ", ".join(f"{name} {value}" for name, value in config.env.options.items())
    sigma = f"{es.sigma:g}" + ("" if es.sigma_end is None else f" to {es.sigma_end:g} ({es.sigma_schedule})")
    control = "" if es.control == "none" else f", control {es.control}"
    return [
        ("model", f"{config.model.path} ({config.model.dtype})"),
        ("environment", f"{config.env.name}" + (f": {options}" if options else "")),
        ("population", f"{es.population_size} members, {es.generations} generations, seed {es.seed}{control}"),
        ("sigma, alpha", f"{sigma}, {es.alpha:g}"),
        ("each member plays", f"{rollout.cases} cases x {rollout.episodes_per_case}, up to {rollout.max_turns} turns"),
        ("a reply", f"up to {rollout.max_new_tokens} tokens, temperature {rollout.temperature:g}"),
        ("held-out", f"{config.eval.episodes} tasks x {config.eval.repeats}"),
    ]


def _duration(seconds: Any) -> str:
    return str(timedelta(seconds=round(seconds))) if isinstance(seconds, int | float) else "-"
