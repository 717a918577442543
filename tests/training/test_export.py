"""`esopt export`: the weights of any generation as a model folder, by checkpoint or by replay."""

import json
import shutil

import numpy as np
import pytest
import tiny_agent
from safetensors.numpy import load_file

from esopt_jax.cli.main import main
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.training.export import export_run
from esopt_jax.training.loop import train
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def run(make_config, tmp_path_factory):
    config = make_config(es__generations=3, train__checkpoint_every=2)
    return train(config, tmp_path_factory.mktemp("runs") / "run")


def weights(folder):
    return {name: x.tobytes() for name, x in load_file(folder / "model.safetensors").items()}


def test_the_end_of_a_run_is_its_final_folder(run, tmp_path):
    done = export_run(run.folder, tmp_path / "out")
    assert (done.updates, done.digest, done.exact) == (3, run.summary["digest"], True)
    final = RunFolder(run.folder).final
    assert {p.name: p.read_bytes() for p in done.folder.iterdir()} == {p.name: p.read_bytes() for p in final.iterdir()}


@pytest.mark.parametrize("generation", [0, 1, 2])
@pytest.mark.parametrize("checkpoints", [True, False])
def test_any_generation_with_and_without_checkpoints(run, tmp_path, generation, checkpoints):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    if not checkpoints:
        shutil.rmtree(RunFolder(folder).checkpoints)
    export_run(folder, tmp_path / "out", generation=generation)
    expected = run.params(generation)
    found = load_model(tmp_path / "out").params
    assert all((np.asarray(found[path]) == np.asarray(expected[path])).all() for path in expected)


def test_generation_0_is_the_base_byte_for_byte(run, tmp_path):
    done = export_run(run.folder, tmp_path / "out", generation=0)
    assert weights(done.folder) == weights(done.base) != weights(RunFolder(run.folder).final)


def test_the_base_may_have_moved_but_must_be_the_base(run, tmp_path):
    moved = shutil.copytree(run.config.model.path, tmp_path / "moved")
    assert export_run(run.folder, tmp_path / "out", base=moved).base == moved
    other = tiny_agent.write_model(tmp_path / "other", seed=1)
    with pytest.raises(EsoptError, match="is not the one that the run began with"):
        export_run(run.folder, tmp_path / "more", base=other)
    assert not (tmp_path / "more").exists()


def test_a_folder_with_something_in_it_is_refused_before_anything_is_read(run, tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    assert main(["export", str(run.folder), "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "is not empty; give a new one" in err
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "--out", "{run}/config.yaml"], "Not a directory"),
        (["{run}", "--out", "{tmp}/out", "--generation", "9"], "generation 9: the history has 0 .. 3"),
        (["{tmp}/none", "--out", "{tmp}/out"], "does not exist"),
        (["{run}", "--out", "{tmp}/out", "--base", "{tmp}/none"], "does not exist"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, capsys, words, message):
    assert main(["export", *(word.format(run=run.folder, tmp=tmp_path) for word in words)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_wrote(run, tmp_path, capsys):
    assert main(["export", str(run.folder), "--out", str(tmp_path / "out"), "--generation", "2"]) == 0
    out = capsys.readouterr().out
    digest = Run(run.folder).history().digests[1]
    assert f"weights after 2 updates, digest {digest}" in out and "another platform" not in out
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == tiny_agent.CONFIG
