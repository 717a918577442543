"""Where a run is, whatever of its files is there yet."""

import io
import json
from datetime import timedelta

import pytest
from rich.console import Console

from esopt_jax.config import to_yaml
from esopt_jax.config_reader import from_dict
from esopt_jax.errors import EsoptError
from esopt_jax.reporting.run_state import LOST, read_state, state_lines
from esopt_jax.reporting.run_view import draw_state, sparkline
from esopt_jax.training.lock import run_lock

_EVALUATION = {"generation": 0, "eval/solve_rate": 0.25, "eval/ci_low": 0.2, "eval/ci_high": 0.3, "eval/episodes": 64}


def _row(generation, **values):
    row = {"generation": generation, "fitness/mean": generation / 10, "fitness/best": 1.0, "sigma": 0.1, "faults": 1}
    return {**row, "tokens_per_s": 2500.0, "wall_s": 100 + 7.0 * generation, **values}


@pytest.fixture
def run(tmp_path):
    """A folder of five generations to come; `write` fills it."""

    class Run:
        path = tmp_path

        def write(self, rows=(), *, status=None, tail="", **summary):
            (tmp_path / "config.yaml").write_text(to_yaml(from_dict({"preset": "toy", "es": {"generations": 5}})))
            (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
            if status is not None:
                (tmp_path / "summary.json").write_text(json.dumps({"status": status, **summary}))
            return read_state(tmp_path)

    return Run()


@pytest.mark.parametrize(("rows", "status"), [(2, "stopped"), (3, "running")])
def test_generations_after_its_summary_show_that_a_run_goes_on(run, rows, status):
    state = run.write([_row(i) for i in range(rows)], status="stopped", generations=2, stopped_because="SIGINT")
    assert (state.status, state.over) == (status, status == "stopped")
    newer = "its summary says stopped after 2 generations, but its metrics are newer"
    assert state.note == ("SIGINT" if rows == 2 else newer)


def test_a_run_that_went_on_and_was_killed_is_lost(run):
    (run.path / "lock").write_text("")
    state = run.write([_row(i) for i in range(3)], status="stopped", generations=2)
    assert (state.status, state.note) == ("running", LOST)


def test_a_run_that_is_only_starting(run):
    state = read_state(run.path)
    assert (state.status, state.generations, state.over) == ("starting", None, False)
    (run.path / "config.yaml").write_text("es: {generations: [")
    assert read_state(run.path).status == "starting"
    state = run.write()
    assert state_lines(state) == ["toy: starting, generation 0/5"]


def test_a_run_that_goes_on(run):
    memory = {"memory/host_peak_bytes": 3 * 2**30, "abandoned_workers": 2}
    state = run.write([_EVALUATION, _row(0), _row(1), _row(2, **memory)], status="running", tail='{"gen')
    assert (state.done, state.faults, state.over) == (3, 3, False)
    assert state.eta == timedelta(seconds=14)
    assert state_lines(state) == [
        "toy: running, generation 3/5, ETA 0:00:14",
        "generation 3/5  fitness 0.200  best 1.000  sigma 0.1  2.5k tokens/s",
        "after 0 updates: held-out solve rate 0.250 (0.200 .. 0.300), 64 episodes",
        "2.5k tokens/s, 3 faults, 3.00 GiB host memory, 2 abandoned workers",
    ]


def test_pace_of_rows_that_do_not_tell_the_time_leaves_compiling_out(run):
    times = {"time/rollout_s": 30.0, "time/update_s": 1.0, "time/compile_s": 25.0}
    assert run.write([_row(0, wall_s=None, **times)], status="running").eta == timedelta(seconds=24)


def test_a_row_told_by_a_replay_alone_is_shown_with_gaps(run):
    row = {"generation": 0, "fitness/mean": 0.5, "fitness/best": None}
    state = run.write([row, {"generation": 1, "eval/solve_rate": None}], status="running")
    assert "generation 1/5  fitness 0.500  best -  sigma -  -k tokens/s" in state_lines(state)
    assert "after 1 updates: held-out solve rate - (- .. -), - episodes" in state_lines(state)


@pytest.mark.parametrize(("status", "why"), [("finished", None), ("stopped", "the disk is full")])
def test_a_run_that_is_over(run, status, why):
    state = run.write([_row(0)], status=status, stopped_because=why)
    assert state.over and state.note == why and state.eta is None
    assert state_lines(state)[0] == f"toy: {status}, generation 1/5"


def test_a_run_whose_process_is_gone(run):
    with run_lock(run.path / "lock"):
        assert run.write([_row(0)], status="running").note is None
    assert read_state(run.path).note == LOST


def test_what_cannot_be_read(run):
    with pytest.raises(EsoptError, match="does not exist"):
        read_state(run.path / "gone")
    run.write(status="running")
    (run.path / "config.yaml").write_text("es: {generations: [")
    with pytest.raises(EsoptError, match="cannot read"):
        read_state(run.path)
    (run.path / "config.yaml").unlink()
    (run.path / "metrics.jsonl").unlink()
    (run.path / "summary.json").rename(run.path / "notes.txt")
    with pytest.raises(EsoptError, match="is no run folder"):
        read_state(run.path)


def test_the_view_fits_a_terminal_and_shows_the_last_generations(run):
    evaluations = [{**_EVALUATION, "generation": g} for g in range(0, 20, 2)]
    state = run.write([*map(_row, range(20)), *evaluations], status="running")
    stream = io.StringIO()
    Console(file=stream, width=80).print(draw_state(state))
    lines = stream.getvalue().splitlines()
    assert len(lines) < 24 and not any("…" in line for line in lines)
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0].isdigit()] == [
        str(g) for g in range(13, 21)
    ]
    assert [line.split()[1] for line in lines if line.startswith("after")] == ["0", "10", "12", "14", "16", "18"]
    assert lines[0].startswith("toy: running, generation 20/5") and "▁" in lines[2] and "█" in lines[2]


def test_sparkline_averages_what_does_not_fit():
    assert sparkline([0, 2, 8, 8, 4, 4], 3) == "▁█▄"
    assert sparkline([], 5) == sparkline([None], 5) == ""
