"""The Python interface to a run folder."""

import pytest

from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError
from esopt_jax.training.evaluate import evaluate
from esopt_jax.training.jsonl import read
from esopt_jax.training.loop import train
from esopt_jax.training.run import Run
from esopt_jax.training.run_folder import RunFolder
from esopt_jax.training.source import load_source


@pytest.fixture(scope="module")
def run(make_config, tmp_path_factory):
    config = make_config(es__generations=3, eval__every=1, eval__by_sampling=True, train__checkpoint_every=2)
    return train(config, tmp_path_factory.mktemp("runs") / "run")


def test_it_reads_what_the_folder_holds(run):
    loaded, files = Run.load(run.folder), RunFolder(run.folder)
    assert loaded == run and loaded.config == load_config(files.config)
    assert loaded.metrics() == read(files.metrics) and loaded.evaluations() == read(files.evaluations)
    assert [record.generation for record in loaded.history().records] == [0, 1, 2]


def test_episodes_of_members_and_of_evaluations(run):
    assert {episode.generation for episode in run.episodes(1)} == {1}
    assert [e.member for e in run.episodes()] == [e.member for e in run.episodes(2)]
    assert {episode.member for episode in run.episodes(0, held_out=True)} == {-1}
    with pytest.raises(EsoptError, match=r"has no gen episodes of 7; it has 0, 1, 2"):
        run.episodes(7)


def test_no_run_no_object(tmp_path):
    with pytest.raises(EsoptError, match="is no run folder"):
        Run.load(tmp_path)


def test_evaluating_a_run_gives_its_final_exactly(run):
    source = load_source(run.folder)
    assert source.updates == 3 and evaluate(source).record() == run.summary["final"]


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_evaluating_a_generation_gives_what_the_run_measured_there(run, generation):
    (measured,) = [row for row in run.evaluations() if (row["updates"], row["sampling"]) == (generation, "preset")]
    found = evaluate(load_source(run.folder, generation=generation)).row()
    assert found == {key: measured[key] for key in found}


def test_evaluating_under_another_sampling(run):
    greedy = evaluate(load_source(run.folder, ["rollout.temperature=0"]))
    assert greedy.record() == run.summary["final_by_sampling"]["greedy"]


def test_what_belongs_to_the_weights_cannot_be_set(run):
    with pytest.raises(EsoptError, match=r"--set es\.… does not change the weights"):
        load_source(run.folder, ["es.sigma=1"])


def test_a_generation_of_what_is_no_run_is_refused():
    with pytest.raises(EsoptError, match="--generation 3 needs a run folder"):
        load_source("quickstart", generation=3)
