"""RandOpt: the best of everything that was drawn, and the vote of the best few."""

from types import SimpleNamespace

import numpy as np
import pytest

from esopt_jax.core.replay import Record
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.rollouts.driver import Start
from esopt_jax.rollouts.vote import Vote, commonest
from esopt_jax.training.baselines.randopt import best_members
from esopt_jax.training.evaluate import evaluate
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.moments import Moment
from esopt_jax.training.resume import resume

SETTINGS = {"method": "randopt", "es__control": "zero_update", "es__generations": 6, "es__sigma": 0.3}


@pytest.fixture(scope="module")
def run(make_config, tmp_path_factory):
    return train(make_config(**SETTINGS, eval__repeats=4), tmp_path_factory.mktemp("randopt") / "run")


def test_the_best_of_many_is_better_than_the_base_whose_weights_stay(run):
    summary = run.summary
    assert summary["method"] == "randopt" and summary["final"] == summary["base"]
    assert summary["train_episodes"] == 6 * 8 * 8
    assert summary["randopt"]["mean"] > summary["base"]["mean"] + 0.1
    assert summary["randopt_vote"]["episodes"] == 16 * 4
    assert run.replay().verdict == "equal"


def test_all_are_compared_on_the_same_cases(run):
    cases = {tuple(row["cases"]) for row in read(run.folder / "history.jsonl") if row["kind"] == "generation"}
    assert len(cases) == 1


def test_one_voter_is_the_best_perturbation_itself(make_config, tmp_path):
    """Through the code of the vote: a vote of one."""
    from esopt_jax.rollouts.sampler import make_sampling
    from esopt_jax.rollouts.vote import rollout_vote
    from esopt_jax.training.evaluate import PRESET, evaluate_view
    from esopt_jax.training.session import load_parts, open_session

    config = make_config()
    environment, model = load_parts(config)
    with open_session(config, environment, model) as session:
        view = dict(model.params)
        _, alone = evaluate_view(session, view, PRESET)
        voted = rollout_vote(
            session.stage,
            [view, view, view],
            session.held_out,
            seed=config.eval.seed,
            sampling=make_sampling(config.rollout),
        )
    assert [[t.completion_ids for t in e.turns] for e in voted] == [[t.completion_ids for t in e.turns] for e in alone]
    assert evaluate(config).mean == np.mean([e.outcome == "success" for e in voted])


def test_a_stopped_run_finds_the_same_best(run, make_config, tmp_path):
    passed = []

    def at(moment):
        passed.append(moment)
        if passed.count(Moment.BEFORE_ROW) == 3:
            raise StoppedError("enough")

    with pytest.raises(StoppedError):
        train(run.config, tmp_path / "run", at=at)
    summary = resume(tmp_path / "run").summary
    assert summary["randopt"] == run.summary["randopt"] and summary["randopt_vote"] == run.summary["randopt_vote"]


def test_best_members_are_ranked_over_all_rounds_the_earlier_first():
    fitness = np.array([[0.5, 0.0, 0.25], [0.75, 0.5, 0.0]], np.float32)
    history = SimpleNamespace(records=[Record(g, 0.1, 0.0, own, np.zeros(3), (), ()) for g, own in enumerate(fitness)])
    assert best_members(history, 3) == [(1, 0), (0, 0), (1, 1)]


class Writer:
    """A policy whose replies to a row are given, one `proceed` late where `slow`."""

    def __init__(self, replies, slow=False):
        self.replies, self.slow, self.rows = replies, slow, []

    def begin(self, starts):
        self.rows = [start.row for start in starts]

    def proceed(self):
        if self.slow:
            self.slow = False
            return {}
        rows, self.rows = self.rows, []
        return {row: self.replies[row] for row in rows}


def test_a_vote_waits_for_all_and_takes_the_commonest_text():
    text = "".join
    vote = Vote(
        [Writer({0: ("a",), 1: ("x",)}), Writer({0: ("b",), 1: ("y",)}), Writer({0: ("b",), 1: ("z",)}, True)], text
    )
    vote.begin([Start(row, (1,), True, None, 0) for row in (0, 1)])
    assert vote.proceed() == {}
    assert vote.proceed() == {0: ("b",), 1: ("x",)}  # of equals the best member's
    assert commonest([("a", "b"), ("ab",)], text) == ("a", "b")


def test_a_vote_refuses_a_conversation_that_grows():
    with pytest.raises(EsoptError, match="prompts that stand alone"):
        Vote([Writer({})], str).begin([Start(0, (1,), False, None, 1)])


def test_the_weights_must_be_left_alone(make_config):
    with pytest.raises(EsoptError, match=r"es\.control is 'none'; it must be zero_update for method randopt"):
        make_config(**{**SETTINGS, "es__control": "none"})
