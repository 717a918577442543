"""`esopt view` on a run that was trained, and what is refused."""

import base64
import gzip
import json
import re
import webbrowser

import pytest
import tiny_agent

from esopt_jax.cli.main import main
from esopt_jax.training.run import Run


@pytest.fixture(scope="module")
def trained(workplace, tmp_path_factory):
    """A run of the tiny agent, all of whose members' episodes are recorded."""
    folder = tmp_path_factory.mktemp("view")
    (folder / "tiny.yaml").write_text("description: a test\n")
    settings = tiny_agent.settings(
        workplace / "model", f"{workplace / 'toys.py'}:Even", eval__episodes=4, log__trajectories="all"
    )
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert main(["train", str(folder / "tiny.yaml"), "--run-dir", str(folder / "out"), *sets]) == 0
    return folder / "out"


def test_every_episode_of_the_run_is_in_the_page(trained, capsys):
    assert main(["view", str(trained)]) == 0
    assert capsys.readouterr().out == f"{trained / 'view.html'}\n"
    text = (trained / "view.html").read_text()
    head = json.loads(re.search(r'id="head">(.*?)</script>', text)[1])
    run = Run.load(trained)
    generations = run.config.es.generations
    assert len(head["columns"]["turns"]) == sum(
        row.get("episodes", 0) + row.get("eval/episodes", 0) for row in run.metrics()
    )
    assert set(head["members"]) == {str(g) for g in range(generations)}
    packs = re.findall(r'id="pack-\d+">(.*?)</script>', text)
    held = [each for pack in packs for each in json.loads(gzip.decompress(base64.b64decode(pack)))]
    first = next(run.episodes(0, held_out=True))
    assert [turn["text"] for turn in held[0]["turns"]] == [turn.text for turn in first.turns]
    assert held[0]["turns"][0]["prompt"].endswith("<end>")


def test_the_page_may_lie_elsewhere_and_be_opened(trained, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["view", str(trained), "--out", str(tmp_path / "a b.html"), "--open"]) == 0
    assert opened == [f"file://{tmp_path}/a%20b.html"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "run folder 'nowhere' does not exist"),
        (["."], "'.' is no run folder: it has no config.yaml"),
        (["nowhere", "--out", "a.txt"], "--out 'a.txt' ends in '.txt'; it must end in .html"),
        (["nowhere", "--out", "none/a.html"], "'none' is not a folder"),
    ],
)
def test_what_is_refused(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["view", *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_damaged_record_is_named(trained, tmp_path, capsys):
    for name in ("config.yaml", "metrics.jsonl", "summary.json"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "gen_00000.jsonl.gz").write_bytes(gzip.compress(b'{"generation": 0}\n'))
    assert main(["view", str(tmp_path)]) == 2
    assert "gen_00000.jsonl.gz: no episode can be read at or after line 1" in capsys.readouterr().err
