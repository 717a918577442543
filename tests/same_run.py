"""What two runs of one config must have in common, however often one of them was stopped."""

from pathlib import Path
from typing import Any

from esopt_jax.models.load import load_model
from esopt_jax.rollouts.trajectory import read_trajectories
from esopt_jax.training.checkpoints import saved_checkpoints
from esopt_jax.training.jsonl import read
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder

TIMES = {"tokens_per_s", "wall_s", "seconds", "compile_s", "peak_rss_bytes"}


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k not in TIMES and not k.startswith(("time/", "memory/"))}


def check_same(found: Path, wanted: Path) -> None:
    """History to the byte; metrics, evaluations, summary and episodes but for times; weights to the bit."""
    ours, theirs = RunFolder(found), RunFolder(wanted)
    assert ours.history.read_bytes() == theirs.history.read_bytes()
    for mine, other in ((ours.metrics, theirs.metrics), (ours.evaluations, theirs.evaluations)):
        assert [without_times(row) for row in read(mine)] == [without_times(row) for row in read(other)]
    assert without_times(Run(found).summary) == without_times(Run(wanted).summary)
    assert saved_checkpoints(ours.checkpoints) == saved_checkpoints(theirs.checkpoints)
    assert sorted(names(found) ^ names(wanted)) == []
    for name in names(wanted):
        if name.startswith("trajectories/"):
            assert _episodes(found / name) == _episodes(wanted / name), name
    mine, other = load_model(ours.final).params, load_model(theirs.final).params
    assert all((mine[path] == other[path]).all() for path in other)


def names(folder: Path) -> set[str]:
    """Files of a run, without those inside checkpoints, whose names orbax makes up."""
    paths = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    return {name for name in paths if not name.startswith("checkpoints/")}


def _episodes(path: Path) -> list:
    return [
        (e.member, e.case, e.episode, e.reward, e.outcome, [(t.prompt_ids, t.completion_ids) for t in e.turns])
        for e in read_trajectories(path)
    ]
