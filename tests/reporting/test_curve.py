import json

import matplotlib.image
import numpy as np
import pytest

from esopt_jax.reporting.curve import draw_curve

_SUMMARY = {"preset": "toy", "task": "echo", "status": "finished"}


def _result(mean):
    return {"mean": mean, "ci95": [mean - 0.1, mean + 0.1]}


def _write(folder, rows, **summary):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text(json.dumps({**_SUMMARY, **summary}))


def _held_out(generation, mean):
    row = {"generation": generation, "eval/solve_rate": mean}
    return {**row, "eval/ci_low": mean - 0.1, "eval/ci_high": mean + 0.1}


@pytest.fixture
def rows():
    population = [{"generation": g, "fitness/mean": g / 10, "fitness/best": g / 5} for g in range(5)]
    return [_held_out(0, 0.2), *population, _held_out(5, 0.6)]


def test_curve_is_a_picture_with_the_colours_of_all_its_parts(tmp_path, rows):
    _write(tmp_path, rows, base=_result(0.2), final=_result(0.6))
    out = draw_curve(tmp_path)
    assert out == tmp_path / "reward_curve.png"
    pixels = (matplotlib.image.imread(out)[..., :3] * 255).round().astype(np.uint8).reshape(-1, 3)
    colours = {tuple(pixel) for pixel in np.unique(pixels, axis=0)}
    assert {(0x44, 0x77, 0xAA), (0x99, 0xBB, 0xDD), (0xCC, 0x33, 0x11)} <= colours


def test_more_reward_is_another_picture(tmp_path, rows):
    _write(tmp_path, rows, base=_result(0.2), final=_result(0.6))
    first = draw_curve(tmp_path, out=tmp_path / "a.png").read_bytes()
    _write(
        tmp_path,
        [*rows, {"generation": 5, "fitness/mean": 0.9, "fitness/best": 1.0}],
        base=_result(0.2),
        final=_result(0.6),
    )
    assert draw_curve(tmp_path, out=tmp_path / "b.png").read_bytes() != first


@pytest.mark.parametrize("rows", [[], [_held_out(0, 0.2)]])
def test_run_that_stopped_early_still_has_a_curve(tmp_path, rows):
    _write(tmp_path, rows, status="stopped", base=_result(0.2) if rows else None, final=None)
    assert draw_curve(tmp_path).stat().st_size > 1000


def test_run_that_is_being_written_has_a_curve(tmp_path, rows):
    _write(tmp_path, rows, status="running", base=None, final=None)
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"generation": 6, "fit')
    whole = draw_curve(tmp_path, out=tmp_path / "a.png").read_bytes()
    _write(tmp_path, rows, status="running", base=None, final=None)
    assert draw_curve(tmp_path, out=tmp_path / "b.png").read_bytes() == whole
    (tmp_path / "summary.json").unlink()
    assert draw_curve(tmp_path).stat().st_size > 1000
    assert not list(tmp_path.glob(".*"))
