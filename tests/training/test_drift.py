"""How far a run has come from its start, and the pull back to it."""

from functools import partial

import numpy as np
import pytest
from same_run import check_same

from esopt_jax.core.master import make_master
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.models.load import load_model
from esopt_jax.training import drift
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.metrics import episode_metrics
from esopt_jax.training.moments import Moment
from esopt_jax.training.restore import base_model
from esopt_jax.training.resume import resume
from esopt_jax.training.run import Run
from esopt_jax.training.session import load_parts, open_session
from esopt_jax.types import Trajectory, Turn

METHODS = {"es": {}, "grpo": {"method": "grpo", "grpo__group_size": 4, "grpo__lr": 1e-2}}


@pytest.fixture(scope="module", params=METHODS)
def run(request, make_config, tmp_path_factory):
    config = make_config(**METHODS[request.param], es__generations=3, log__drift_every=2, train__checkpoint_every=1)
    return config, train(config, tmp_path_factory.mktemp("drift") / "run")


def rows_of(run):
    return [row for row in run.metrics() if "drift/distance" in row]


def test_there_is_none_before_the_first_update_and_some_after_it(run):
    _, done = run
    first, *later = rows_of(done)
    assert [row["generation"] for row in (first, *later)] == [0, 2, 3]
    assert first["drift/distance"] == 0 and first["drift/kl"] == 0
    assert all(row["drift/kl"] > 1e-5 for row in later)


def test_distances_are_those_of_the_weights(run):
    config, done = run
    base, moved = load_model(config.model.path), done.params(3)
    wanted = {}
    for spec in base.specs:
        square = float(((np.asarray(moved[spec.path], np.float64) - base.params[spec.path]) ** 2).sum())
        wanted[spec.group] = wanted.get(spec.group, 0) + square
    row = rows_of(done)[-1]
    for group, square in wanted.items():
        assert row[f"drift/distance/{group}"] == pytest.approx(square**0.5, rel=1e-4)
    assert row["drift/distance"] == pytest.approx(sum(wanted.values()) ** 0.5, rel=1e-4)


def test_a_run_that_was_stopped_measures_the_same(run, tmp_path):
    config, done = run
    passed = []

    def at(moment):
        passed.append(moment)
        if passed.count(Moment.AFTER_APPLIED) == 3:
            raise StoppedError("enough")

    with pytest.raises(StoppedError):
        train(config, tmp_path / "run", at=at)
    check_same(resume(tmp_path / "run").folder, done.folder)


def test_divergence_is_that_of_the_distributions(make_config):
    """Against the definition, with logits from the model's own prefill of every prefix."""
    import jax
    import jax.numpy as jnp

    from esopt_jax.models.registry import init_cache, prefill

    config = make_config()
    environment, model = load_parts(config)
    with open_session(config, environment, model) as session:
        start = make_master(dict(load_model(config.model.path).params), specs=model.specs, format="float32")
        probes = drift.probe_set(session, start)
        again = drift.probe_set(session, start)
    assert (probes.tokens == again.tokens).all()
    moved = {path: leaf * 1.2 for path, leaf in start.items()}
    prompts, ids = partial(prefill, arch=model.arch), model.vocab_limit
    found, count = 0.0, 0
    for row in range(drift.PROBES):
        for position in np.flatnonzero(probes.weights[row]):
            tokens, length = jnp.asarray(probes.tokens[row : row + 1, :position]), jnp.array([position], jnp.int32)
            new, old = (
                jax.nn.log_softmax(prompts(w, init_cache(model.arch, 1, int(position)), tokens, length)[0][0, :ids])
                for w in (moved, start)
            )
            found, count = found + float(jnp.sum(jnp.exp(new) * (new - old))), count + 1
    assert drift.divergence(session, moved, start, probes) == pytest.approx(found / count, rel=1e-3)
    assert drift.divergence(session, start, start, probes) == 0


def test_drift_changes_nothing_that_is_learned(run, make_config, tmp_path):
    import dataclasses

    config, done = run
    plain = dataclasses.replace(config, log=dataclasses.replace(config.log, drift_every=0))
    assert train(plain, tmp_path / "run").summary["digest"] == done.summary["digest"]


@pytest.mark.parametrize("master", ["float32", "split"])
def test_an_anchor_pulls_a_share_of_the_way_back_in_training_resume_and_replay(make_config, tmp_path, master):
    settings = {"es__generations": 1, "es__master": master}
    free = train(make_config(**settings), tmp_path / "free")
    held = train(make_config(**settings, es__anchor=0.25), tmp_path / "held")
    base = base_model(free.config.model.path, free.config.es).params
    for path, leaf in free.params(1).items():
        start = np.asarray(base[path], np.float32)
        np.testing.assert_allclose(held.params(1)[path], start + 0.75 * (leaf - start), atol=1e-6, err_msg=path)
    assert held.replay().verdict == "equal"


def test_an_anchored_run_goes_on_to_the_same_end(make_config, tmp_path):
    config = make_config(es__generations=3, es__anchor=0.1, es__scope="pattern:mlp")
    whole, passed = train(config, tmp_path / "whole"), []

    def at(moment):
        passed.append(moment)
        if passed.count(Moment.BEFORE_APPLIED) == 2:
            raise StoppedError("enough")

    with pytest.raises(StoppedError):
        train(config, tmp_path / "run", at=at)
    resume(tmp_path / "run")
    check_same(tmp_path / "run", whole.folder)
    assert Run(tmp_path / "run").replay().verdict == "equal"


def test_histories_from_before_there_was_an_anchor_are_read(make_config, tmp_path):
    from esopt_jax.training.jsonl import encode

    run = train(make_config(es__generations=1), tmp_path / "run")
    path = run.folder / "history.jsonl"
    rows = read(path)
    del rows[0]["es"]["anchor"]
    path.write_text("".join(encode(row) + "\n" for row in rows))
    assert run.replay().verdict == "equal"


def test_an_anchor_is_refused_where_it_would_be_lost(make_config):
    with pytest.raises(EsoptError, match=r"es\.anchor needs es\.master float32 or split"):
        make_config(es__anchor=0.1, es__master="bfloat16")
    with pytest.raises(EsoptError, match=r"es\.anchor is 2\.0; it must be in 0"):
        make_config(es__anchor=2.0)


def test_repeated_actions_are_replies_given_before():
    turns = tuple(Turn((1,), (2,), text, 0.0, False, False, 0.0) for text in ("a", "b", "a", "a"))
    episodes = [Trajectory(0, 0, 0, "t", 0, turns, "failure", 0.0, 0.0)]
    assert episode_metrics(episodes)["repeated_action_rate"] == 0.5
