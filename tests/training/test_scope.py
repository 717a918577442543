"""Runs that tune a part of the weights."""

import numpy as np
import pytest

from esopt_jax.core.scope import tuned_specs
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.training.evaluate import evaluate
from esopt_jax.training.export import export_run
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.resume import resume
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.source import load_source


@pytest.mark.parametrize(
    "settings",
    [
        {"es__scope": "all_linear", "es__plan": "low_rank", "es__master": "split", "model__dtype": "bfloat16"},
        {"es__scope": r"pattern:^layers\.0\.mlp", "es__members_per_pass": 3, "eval__best_random": True},
    ],
)
def test_a_run_moves_its_scope_alone_and_replays_to_its_digest(make_config, tmp_path, settings):
    config = make_config(train__checkpoint_every=0, **settings)
    run = train(config, tmp_path / "run")
    header = read(RunFolder(run.folder).history)[0]
    assert header["es"]["scope"] == config.es.scope
    found = run.replay()
    assert (found.verdict, found.digest) == ("equal", run.summary["digest"])
    base = load_model(config.model.path)
    inside = {spec.path for spec in tuned_specs(base.specs, config.es.scope)}
    moved = {path for path, leaf in run.params().items() if (np.asarray(leaf) != np.asarray(base.params[path])).any()}
    assert moved == inside and len(inside) < len(base.specs)


def test_resume_goes_on_in_the_same_scope(make_config, tmp_path):
    config = make_config(es__scope="all_linear", es__generations=1)
    whole = train(make_config(es__scope="all_linear", es__generations=2), tmp_path / "whole")
    run = resume(train(config, tmp_path / "run").folder, ["es.generations=2"])
    assert run.summary["digest"] == whole.summary["digest"]


def test_a_pattern_that_every_leaf_matches_is_the_full_scope(make_config, tmp_path):
    run = train(make_config(es__scope="pattern:", es__generations=1), tmp_path / "run")
    full = train(make_config(es__generations=1), tmp_path / "full")
    assert run.summary["digest"] == full.summary["digest"]


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ("linear", "es.scope is 'linear'; it must be full, all_linear, pattern:REGEX"),
        ("pattern:[", r"es.scope is 'pattern:\['; it must be"),
        ("glob:*", r"es.scope is 'glob:\*'; it must be"),
        ("full:x", "es.scope is 'full:x'; it must be"),
        ("lora", "es.scope is 'lora'; it must be"),
        ("lora:0", "es.scope is 'lora:0'; it must be"),
        ("lora:2:(", r"es.scope is 'lora:2:\('; it must be"),
    ],
)
def test_what_is_no_scope(make_config, scope, message):
    with pytest.raises(EsoptError, match=message):
        make_config(es__scope=scope)


def test_a_pattern_that_no_leaf_matches_is_refused_before_there_is_a_folder(make_config, tmp_path):
    for scope in ("pattern:vision", "lora:2:norm"):
        with pytest.raises(EsoptError, match=f"'{scope}', which no leaf of the model is in"):
            train(make_config(es__scope=scope), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"es__scope": "lora:2"},
        pytest.param(
            {
                "es__scope": "lora:1:embed|mlp",
                "es__plan": "low_rank",
                "es__master": "split",
                "model__dtype": "bfloat16",
            },
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_with_adapters(make_config, tmp_path, settings):
    """Only the adapters move; the run replays, scores alike and exports a merged model."""
    config = make_config(es__sigma=0.5, es__alpha=0.5, train__checkpoint_every=1, **settings)
    run = train(config, tmp_path / "run")
    assert run.replay().verdict == "equal"
    base, params = load_model(config.model.path), run.params()
    moved = {path for path, leaf in params.items() if path.endswith("@right") and np.asarray(leaf).any()}
    adapted = {path.partition("@")[0] for path in params if "@" in path}
    assert {path.partition("@")[0] for path in moved} == adapted and len(adapted) > 2
    assert all((np.asarray(params[path]) == np.asarray(leaf)).all() for path, leaf in base.params.items())
    assert evaluate(load_source(run.folder)).record() == run.summary["final"]
    final = load_model(RunFolder(run.folder).final)
    assert final.specs == base.specs
    for path, leaf in base.params.items():
        left, right = (np.asarray(params.get(path + side, 0.0), np.float64) for side in ("@left", "@right"))
        change = np.reshape(left.T @ right, leaf.shape) if path in adapted else 0.0
        np.testing.assert_allclose(final.params[path], np.asarray(leaf, np.float64) + change, atol=1e-6)
    export = export_run(run.folder, tmp_path / "out", generation=0).folder / "model.safetensors"
    assert export.read_bytes() == (base.folder / "model.safetensors").read_bytes()
