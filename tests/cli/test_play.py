"""`esopt play`: one seed is one episode; recorded ones are shown the same way."""

import json

import pytest
import tiny_agent

from esopt_jax.cli.main import main
from esopt_jax.rollouts.trajectory import from_record, write_trajectories


@pytest.fixture
def play(workplace, tmp_path, monkeypatch, capsys):
    """Run `esopt play` on the tiny agent; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text("description: a test\n")

    def run(*words, factory="Even", **overrides):
        settings = tiny_agent.settings(workplace / "model", f"{workplace / 'toys.py'}:{factory}", **overrides)
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        code = main(["play", "tiny.yaml", *words, *sets])
        return code, *capsys.readouterr()

    return run


def _episode(said):
    code, out, _ = said
    assert code == 0
    record = json.loads(out)
    for turn in record["turns"]:
        del turn["seconds"]
    return record


def test_one_seed_is_one_episode(play):
    first, again, other = (_episode(play("--json", "--seed", seed)) for seed in ("3", "3", "4"))
    assert first == again != other
    assert len(first["turns"]) == 2 and first["member"] == -1 and first["task_id"].startswith("eval-")


def test_a_task_by_index_or_id_of_either_split(play):
    by_index = _episode(play("--json", "--task", "9", "--split", "train"))
    assert by_index == _episode(play("--json", "--task", "train-9", "--split", "train"))
    assert (by_index["task_id"], by_index["case"]) == ("train-9", 9)


def test_the_episode_is_printed_in_plain_text(play):
    code, out, err = play("--task", "2")
    record = _episode(play("--json", "--task", "2"))
    assert code == 0 and "\x1b" not in out and "after 0 updates, seed 0" in err
    assert out.startswith("task eval-2 (case 2), unperturbed model") and "    | c<end>\n" in out
    for turn in record["turns"]:
        assert "".join(f"    | {line}\n" for line in turn["text"].split("\n")) in out
    assert out.splitlines()[-1].startswith(f"{record['outcome']}: reward {record['reward']:g} in 2 turns")


def test_a_run_plays_with_the_weights_it_ended_with(play, workplace, capsys):
    settings = tiny_agent.settings(
        workplace / "model", f"{workplace / 'toys.py'}:Even", es__alpha=1.0, eval__episodes=4
    )
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert main(["train", "tiny.yaml", "--run-dir", "out", *sets]) == 0
    capsys.readouterr()
    said = {}
    for name, words in {"last": [], "first": ["--generation", "0"]}.items():
        assert main(["play", "out", "--json", *words]) == 0
        said[name], err = capsys.readouterr()
        assert f"after {2 if name == 'last' else 0} updates" in err
    last, first = (_episode((0, said[name], "")) for name in ("last", "first"))
    assert last == _episode(play("--json", model__path="out/final"))
    assert first == _episode(play("--json")) != last


@pytest.mark.parametrize(("variable", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_left_out_on_request(play, monkeypatch, variable, coloured):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", **variable}.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in play()[1]) is coloured


def test_an_episode_lost_to_its_environment_is_exit_code_3(play):
    code, out, _ = play("--task", "0", factory="Broken", rollout__step_retries=0)
    assert code == 3 and out.splitlines()[-1].startswith("error: ConnectionError: service")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "64"], "there is no eval task '64'; indices are 0 .. 63, ids are such as 'eval-0'"),
        (["--task", "nine"], "there is no eval task 'nine'"),
        (["--seed", "-1"], "--seed is -1; it must be in 0 .. 2^32-1"),
        (["--file", "x"], "give either whose agent plays"),
    ],
)
def test_what_is_refused(play, words, message):
    code, out, err = play(*words)
    assert (code, out) == (2, "") and message in err and "Traceback" not in err


@pytest.fixture
def recorded(play, tmp_path):
    """A file of two episodes where a run would have it."""
    records = [_episode(play("--json", "--task", task)) for task in ("0", "1")]
    path = tmp_path / "run" / "trajectories" / "gen_00000.jsonl.gz"
    episodes = [{**record, "turns": [{**turn, "seconds": 0.0} for turn in record["turns"]]} for record in records]
    path.parent.parent.mkdir()
    write_trajectories(path, map(from_record, episodes))
    return path


def test_a_recorded_episode_with_the_tokenizer_of_its_run(recorded, workplace, capsys):
    (recorded.parents[1] / "config.yaml").write_text(f"model: {{path: {workplace / 'model'}}}\n")
    assert main(["play", "--file", str(recorded), "--index", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("task eval-1 (case 1)") and "    | b<end>\n" in out
    assert main(["play", "--file", str(recorded), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task_id"] == "eval-0"


def test_a_recorded_episode_away_from_its_run(recorded, tmp_path, capsys):
    moved = recorded.rename(tmp_path / recorded.name)
    assert main(["play", "--file", str(moved)]) == 0
    out, err = capsys.readouterr()
    assert "read 2 tokens" in out and "<end>" not in out and "    | " in out
    assert "stays hidden, for want of its tokenizer" in err


@pytest.mark.parametrize(("index", "message"), [("2", "--index is 2, but"), ("-1", "holds 2 episodes, counted from 0")])
def test_index_of_a_recorded_episode(recorded, capsys, index, message):
    assert main(["play", "--file", str(recorded), "--index", index]) == 2
    assert message in capsys.readouterr().err
