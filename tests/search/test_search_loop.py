"""A search on disk: it finds what there is to find, spends its budget, and goes on where it was killed."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from toy_search import Guess, HereScorer, toy_config, toy_writer

from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.search.config import load_ahd_config
from esopt_jax.search.loop import search
from esopt_jax.search.run_files import SearchFolder, read_recorded
from esopt_jax.search.scorer import Score
from esopt_jax.search.writer import Reply
from esopt_jax.training.jsonl import read, read_json


def run(folder, config, *, writer=None, scorer=None, **kwargs):
    return search(config, folder, brief=Guess(), scorer=scorer or HereScorer(), writer=writer or toy_writer(), **kwargs)


def programs(folder):
    return list(read_recorded(SearchFolder(folder)).programs)


def test_evolution_finds_the_optimum_and_sampling_does_not(tmp_path):
    best = {}
    for method in ("eoh", "sample"):
        state = run(tmp_path / method, toy_config(method=method, budget=300))
        best[method] = state.best.objective
    assert best["eoh"] < 1e-3 < best["sample"]


def test_larger_is_better_where_the_task_says_so(tmp_path):
    state = run(tmp_path / "max", toy_config(budget=300), scorer=HereScorer(direction="max"))
    assert -1e-3 < state.best.objective <= 0


def test_a_constant_objective_prefers_nothing(tmp_path):
    """The control: without a difference in the objective the numbers wander as far as without selection."""
    config = toy_config(budget=400)
    state = run(tmp_path / "control", config, scorer=HereScorer(constant=True))
    values = [eval(p.code.rpartition("x = ")[2].split("\n")[0]) for p in state.population]
    assert min(abs(value - 2.5) for value in values) > 1e-3
    found = programs(tmp_path / "control")
    shown = [call for p in found if p.operator == "m1" for call in p.parents]
    assert len(set(shown)) > 50  # the population turns over: nobody stays because of age
    assert any(p.call > 300 for p in state.population)


def test_what_is_recorded(tmp_path):
    state = run(tmp_path, toy_config(budget=100))
    found = programs(tmp_path)
    assert len(found) == len(read(tmp_path / "answers.jsonl")) == 100
    summary = read_json(tmp_path / "summary.json")
    assert (summary["status"], summary["calls"]) == ("finished", 100)
    assert summary["invalid"] == sum(not p.valid for p in found) > 0
    assert summary["best_objective"] == min(p.objective for p in found if p.valid) == state.best.objective
    assert read_json(tmp_path / "env.json")["versions"]["numpy"]
    best = (tmp_path / "best.py").read_text()
    assert state.best.code in best
    assert next(iter(HereScorer().score([best]))).objective == state.best.objective
    curve = (tmp_path / "curve.csv").read_text().splitlines()
    assert curve[0] == "calls,objective,best" and len(curve) == 101
    bests = [float(line.split(",")[2]) for line in curve[1:] if line.split(",")[2]]
    assert bests == sorted(bests, reverse=True) and bests[-1] == state.best.objective
    rows = read(tmp_path / "populations.jsonl")
    assert [row["operator"] for row in rows] == ["i1", "i1", "e1", "e2", "m1", "m2", "e1", "e2", "m1", "m2"]
    assert rows[-1]["population"] == [p.call for p in state.population]
    assert all(row["objectives"] == sorted(row["objectives"]) for row in rows)
    assert load_ahd_config(tmp_path / "config.yaml") == toy_config(budget=100)
    reasons = {p.reason.split(":")[0] for p in found if not p.valid}
    assert reasons == {"the answer has no function guess", "syntax error in line 1", "ZeroDivisionError"}


@pytest.mark.parametrize(("mode", "shown"), [("plain", "calls 100/100  best 0.0"), ("rich", "100/100"), ("none", "")])
def test_what_is_shown(tmp_path, mode, shown, caplog, capfd):
    config = dataclasses.replace(toy_config(budget=100), progress=mode)
    with caplog.at_level("INFO", "esopt_jax"):
        run(tmp_path, config)
    told = caplog.text + capfd.readouterr().err
    assert shown in told and (shown or not told)


def test_a_program_that_was_there_before_is_not_run_again(tmp_path):
    scorer = HereScorer()
    same = [Reply(f"def guess(a{i}):\n    return 1.0 * a{i}  # {i}") for i in range(20)]

    class Same:
        def write(self, requests):
            return [same[i % 20] for i in range(len(requests))]

    state = run(tmp_path, toy_config(budget=40), writer=Same(), scorer=scorer)
    found = programs(tmp_path)
    assert len(scorer.ran) == 1 and len(state.population) == 1
    assert [p.twin for p in found] == [None] + [0] * 39
    assert {p.objective for p in found} == {1.5}


def test_a_score_that_json_cannot_say_is_no_score(tmp_path):
    class Odd(HereScorer):
        def score(self, codes):
            return (
                Score(value, "x" * 5000) for value, _ in zip((float("nan"), float("inf"), 1.0) * 9, codes, strict=False)
            )

    run(tmp_path, toy_config(budget=10), scorer=Odd())
    found = [p for p in programs(tmp_path) if p.key and p.twin is None]
    assert [p.objective for p in found[:3]] == [None, None, 1.0]
    assert found[0].reason == "an objective of nan" and len(found[2].reason) == 1000


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the search's own catches it, and nothing is written after it."""


@pytest.mark.parametrize("method", ["eoh", "sample"])
@pytest.mark.parametrize("moment", ["answered", "saved", "recorded"])
@pytest.mark.parametrize("nth", [1, 3, 7])
def test_killed_and_resumed_is_uninterrupted(tmp_path, monkeypatch, method, moment, nth):
    config = toy_config(method=method, budget=90, retries=1)
    whole = run(tmp_path / "whole", config)
    left = nth

    def at(now):
        nonlocal left
        left -= now == moment
        if left == 0:
            monkeypatch.setattr("esopt_jax.search.loop.conclude", lambda *_: None)
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path / "killed", config, at=at)
    with (tmp_path / "killed" / "programs.jsonl").open("a") as torn:
        torn.write('{"call": 7, "ba')
    monkeypatch.undo()
    resumed = run(tmp_path / "killed", config, resume=True)
    assert resumed == whole
    assert programs(tmp_path / "killed") == programs(tmp_path / "whole")
    names = ("best.py", "curve.csv")
    assert all((tmp_path / "killed" / n).read_bytes() == (tmp_path / "whole" / n).read_bytes() for n in names)
    asked = [row["call"] for row in read(tmp_path / "killed" / "answers.jsonl")]
    assert sorted(asked) == list(range(len(asked)))  # no answer was asked for twice


_CHILD = """
import os, signal, sys
from pathlib import Path
from toy_search import Guess, HereScorer, toy_config, toy_writer
from esopt_jax.search.loop import search
left = int(sys.argv[2])
def at(moment):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
folder = Path(sys.argv[1])
resume = (folder / "config.yaml").exists()
search(toy_config(budget=60), folder, brief=Guess(), scorer=HereScorer(), writer=toy_writer(), resume=resume, at=at)
"""


def test_killed_again_and_again(tmp_path):
    tests = Path(__file__).parents[1]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")]),
    }
    codes = []
    for left in (5, 20, 9, 33, 1000):
        done = subprocess.run([sys.executable, "-c", _CHILD, str(tmp_path / "killed"), str(left)], env=env, timeout=200)
        codes.append(done.returncode)
    assert codes == [-signal.SIGKILL] * 4 + [0]
    run(tmp_path / "whole", toy_config(budget=60))
    assert programs(tmp_path / "killed") == programs(tmp_path / "whole")


def test_a_finished_search_goes_on_to_nothing(tmp_path):
    state = run(tmp_path, toy_config(budget=30))
    before = (tmp_path / "programs.jsonl").read_bytes()
    assert run(tmp_path, toy_config(budget=30), resume=True, writer=None) == state
    assert (tmp_path / "programs.jsonl").read_bytes() == before


def test_a_service_that_fails_loses_no_answer(tmp_path):
    config = toy_config(budget=60)

    class Failing:
        def __init__(self):
            self.asked = 0

        def write(self, requests):
            self.asked += len(requests)
            replies = toy_writer().write(requests)
            return replies if self.asked < 30 else [replies[0], Reply("", error="the service is gone"), *replies[2:]]

    with pytest.raises(StoppedError, match=r"the service is gone; 9 of 10 answers came and are kept: .*--resume"):
        run(tmp_path / "failed", config, writer=Failing())
    assert read_json(tmp_path / "failed" / "summary.json")["status"] == "stopped"
    counted = 0

    class Counting:
        def write(self, requests):
            nonlocal counted
            counted += len(requests)
            return toy_writer().write(requests)

    resumed = run(tmp_path / "failed", config, writer=Counting(), resume=True)
    assert resumed == run(tmp_path / "whole", config)
    assert counted == 60 - 20 - 9


def test_a_signal_stops_it_resumably(tmp_path):
    config = toy_config(budget=60)
    calls = 0

    def at(moment):
        nonlocal calls
        calls += 1
        if calls == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        run(tmp_path / "stopped", config, at=at)
    assert run(tmp_path / "stopped", config, resume=True) == run(tmp_path / "whole", config)


def test_folders_that_cannot_be_used(tmp_path):
    run(tmp_path / "done", toy_config(budget=20))
    with pytest.raises(EsoptError, match="is not empty"):
        run(tmp_path / "done", toy_config(budget=20))
    with pytest.raises(EsoptError, match="holds no search"):
        run(tmp_path / "nothing", toy_config(budget=20), resume=True)
    with pytest.raises(EsoptError, match="not what the config asks for"):
        run(tmp_path / "done", toy_config(budget=20, seed=5), resume=True)
    with pytest.raises(EsoptError, match="an evolver is given if and only if"):
        run(tmp_path / "new", toy_config(budget=20), evolver=toy_writer())
    text = (tmp_path / "done" / "programs.jsonl").read_text().splitlines()
    (tmp_path / "done" / "programs.jsonl").write_text("\n".join([*text[:4], '{"call": 4}', *text[5:]]) + "\n")
    with pytest.raises(EsoptError, match=r"programs.jsonl, line 5: .* missing"):
        run(tmp_path / "done", toy_config(budget=20), resume=True)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"search": {"bugdet": 3}}, "unknown key 'search.bugdet': did you mean 'budget'"),
        ({"writter": {}}, "unknown key 'writter': did you mean 'writer'"),
        ({"search": {"budget": 0}}, "search.budget is 0; it must be at least 1"),
        ({"search": {"method": "eho"}}, "search.method is 'eho'; did you mean 'eoh'"),
        ({"search": {"mutations": 0.01}}, "search.mutations is 0.01; it must be so large that m1 asks for a program"),
        ({"writer": {"backend": "model"}}, "writer.model is ''; it must be a model"),
        ({"writer": {"backend": "endpoint", "model": "m"}}, "writer.base_url is ''; it must be the address"),
        ({"writer": {"top_p": 0}}, "writer.top_p is 0.0; it must be above 0, at most 1"),
    ],
)
def test_a_config_that_is_wrong(tree, message):
    from esopt_jax.search.config import from_mapping

    with pytest.raises(EsoptError) as fault:
        from_mapping({"writer": {"backend": "scripted"}, **tree})
    assert message in str(fault.value)
