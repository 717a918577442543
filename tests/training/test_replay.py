"""Base + history = the weights, on this platform to the bit and on another to tolerance."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from esopt_jax.core.digest import digest
from esopt_jax.core.master import make_master
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.training import replay as replay_module
from esopt_jax.training.coefficients import coefficients
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.replay import replay_file
from esopt_jax.training.restore import base_model, restore
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def config(make_config):
    return make_config(es__generations=3, train__checkpoint_every=1, train__keep_checkpoints=5)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    return train(config, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def low_rank(make_config, tmp_path_factory):
    return train(
        make_config(es__generations=1, es__plan="low_rank", es__rank=2), tmp_path_factory.mktemp("low") / "run"
    )


@pytest.fixture
def bfloat16_model(config, tmp_path):
    """The tiny model as a file of bfloat16 weights."""
    import ml_dtypes
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "bfloat16"
    shutil.copytree(config.model.path, folder)
    tensors = load_file(folder / "model.safetensors")
    save_file({k: v.astype(ml_dtypes.bfloat16) for k, v in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.fixture
def copy(run, tmp_path):
    return Run(shutil.copytree(run.folder, tmp_path / "run"))


@pytest.mark.parametrize(
    "settings",
    [
        {"es__plan": "low_rank", "es__rank": 2, "es__master": "split", "model__dtype": "bfloat16"},
        {"es__master": "bfloat16", "es__rounding": "stochastic", "es__antithetic": True},
        {"es__sigma_multipliers": {"norm": 0.5}, "es__control": "shuffled_rewards", "es__members_per_pass": 3},
    ],
)
def test_every_kind_of_run_replays_to_its_digest(make_config, tmp_path, settings):
    run = train(make_config(train__checkpoint_every=0, **settings), tmp_path / "run")
    assert not RunFolder(run.folder).checkpoints.exists()
    found = run.replay()
    assert (found.verdict, found.digest, found.updates) == ("equal", run.summary["digest"], 2)


def test_every_generation_replays_to_the_digest_that_the_history_holds(copy):
    shutil.rmtree(RunFolder(copy.folder).checkpoints)
    rows = read(RunFolder(copy.folder).history)
    marks = [rows[0]["base_digest"], *(row["digest"] for row in rows if row["kind"] == "applied")]
    for generation, mark in enumerate(marks):
        found = copy.replay(generation)
        assert (found.verdict, found.digest, found.expected) == ("equal", mark, mark)
    assert copy.replay().digest == marks[-1] == copy.summary["digest"]


def test_a_history_alone_and_a_base_suffice(run, config, tmp_path):
    shared = shutil.copy(RunFolder(run.folder).history, tmp_path / "shared.jsonl")
    found = replay_file(shared, base=config.model.path)
    assert found.verdict == "equal" and found.digest == run.summary["digest"]
    specs = load_model(config.model.path).specs
    assert digest(make_master(found.params, specs=specs, format="float32")) == found.digest


def test_weights_by_checkpoint_and_by_replay_are_the_same(run, copy):
    shutil.rmtree(RunFolder(copy.folder).checkpoints)
    for generation in (0, 1, 3):
        ours, theirs = run.params(generation), copy.params(generation)
        assert all((np.asarray(ours[path]) == np.asarray(theirs[path])).all() for path in ours)
    assert any((np.asarray(run.params(1)[path]) != np.asarray(run.params(3)[path])).any() for path in ours)


def test_a_generation_that_is_not_there_is_refused(run):
    for generation in (-1, 4):
        with pytest.raises(EsoptError, match=rf"generation {generation}: the history has 0 .. 3"):
            run.replay(generation)


@pytest.mark.parametrize(("mesh", "same"), [((1, 1), True), ((4, 1), True), ((1, 2), False)])
def test_a_low_rank_update_is_the_same_wherever_as_many_devices_share_a_model(low_rank, mesh, same):
    """A product's last bits depend on how it is split, not on who else plays: only there may a digest differ."""
    history = low_rank.history()
    header = dataclasses.replace(history.header, mesh=mesh)
    edited = dataclasses.replace(history, header=header, digests=("0" * 32, *history.digests[1:]))
    model = base_model(low_rank.config.model.path, history.header.es)

    def replayed():
        return restore(edited, model, updates=1, fingerprint=history.fingerprint, mesh=(1, 1))

    if same:
        with pytest.raises(EsoptError, match="the history was changed after it was written"):
            replayed()
    else:
        assert not replayed().exact


def test_another_base_is_refused(run, tmp_path):
    import tiny_agent

    with pytest.raises(EsoptError, match="is not the one that the run began with"):
        run.replay(base=tiny_agent.write_model(tmp_path / "other", seed=1))


def as_of_another_platform(run, **changes):
    path = RunFolder(run.folder).history
    rows = read(path)
    rows[0]["fingerprint"] = "e" * 16
    for row in rows:
        row.update({key: value for key, value in changes.items() if key in row})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_on_another_platform_weights_of_other_digests_are_not_compared_with(copy):
    as_of_another_platform(copy, digest="0" * 32)
    assert copy.replay().verdict == "another platform"  # neither checkpoints nor final weights have such a digest


def test_on_another_platform_without_weights_nothing_is_claimed(copy):
    as_of_another_platform(copy, digest="0" * 32)
    shutil.rmtree(RunFolder(copy.folder).final)
    found = copy.replay()
    assert found.verdict == "another platform" and found.largest_difference is None


def test_on_another_platform_the_largest_difference_is_told(copy, monkeypatch):
    as_of_another_platform(copy)
    monkeypatch.setattr(replay_module, "restore", slightly_off)
    found = copy.replay()
    assert found.verdict == "equal to tolerance" and found.compared_with == "checkpoint of 3 updates"
    assert found.largest_difference == pytest.approx(1e-6, rel=0.2)
    shutil.rmtree(RunFolder(copy.folder).checkpoints)
    assert copy.replay().compared_with == "final weights"


def slightly_off(*args, **kwargs):
    """What another platform may make of a replay."""
    restored = restore(*args, **kwargs)
    master = {path: leaf + 1e-6 for path, leaf in restored.master.items()}
    return dataclasses.replace(restored, master=master, digest="f" * 32, exact=False)


def test_on_another_platform_a_changed_history_is_not_called_tolerance(copy):
    as_of_another_platform(copy)
    change = {"fitness": list(range(8)), "weights": coefficients(np.arange(8, dtype=np.float32), copy.config.es, 0)[0]}
    as_of_another_platform(copy, fitness=change["fitness"], weights=change["weights"].tolist())
    with pytest.raises(EsoptError, match="more than another platform explains"):
        copy.replay()


def test_on_another_platform_rounded_or_older_final_weights_are_no_evidence(make_config, tmp_path, bfloat16_model):
    """`final/` has the base's type: rounded, it is not what the run had, and proves nothing against a replay."""
    config = make_config(model__path=str(bfloat16_model), es__master="split", train__checkpoint_every=0)
    run = train(config, tmp_path / "run")
    assert run.replay().verdict == "equal"
    as_of_another_platform(run, digest="0" * 32)
    assert run.replay().verdict == "another platform"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="asks XLA for another x86 instruction set")
def test_really_on_another_platform(run, tmp_path):
    """Without fused multiply-adds a few normals differ in their last bit, and so does the fingerprint."""
    command = [sys.executable, "-m", "esopt_jax.cli.main", "replay", str(run.folder), "--json"]
    flags = {**os.environ, "XLA_FLAGS": "--xla_cpu_max_isa=AVX", "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla")}
    done = subprocess.run(command, capture_output=True, text=True, env=flags, check=True)
    found = json.loads(done.stdout)
    assert found["verdict"] == "equal to tolerance" and found["compared_with"] == "checkpoint of 3 updates"
    assert found["digest"] != found["expected"] == run.summary["digest"]
    assert 0 < found["largest_difference"] < 1e-6
