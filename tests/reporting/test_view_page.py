"""The page of a run as a file: what it holds, and that data in it can be nothing else."""

import base64
import gzip
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import view_runs
from view_runs import episode, turn

from esopt_jax.config_reader import from_dict
from esopt_jax.errors import EsoptError
from esopt_jax.reporting import page_episodes
from esopt_jax.reporting.boards import episode_boards
from esopt_jax.reporting.page import check_page, write_page
from esopt_jax.reporting.page_episodes import tabulate
from esopt_jax.reporting.page_members import best_and_worst
from esopt_jax.reporting.page_overview import charts
from esopt_jax.training.run import Run

HOSTILE = "</script><script>alert(1)</script><!--<script> {{script}} \u2028\u202e\x00\ud800 & é"


class _Parts(HTMLParser):
    """Scripts and styles of a page as a browser splits them, and the attributes of all elements."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.styles, self.elements, self._open = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = {"script": self.scripts, "style": self.styles}.get(tag)
        if self._open is not None:
            self._open.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open is not None:
            self._open[-1][1] += data

    @property
    def policy(self):
        (content,) = [a["content"] for t, a in self.elements if t == "meta" and "http-equiv" in a]
        return content


def _parts(path):
    return _Parts(path.read_text(encoding="utf-8"))


def _head(parts):
    (text,) = [text for attrs, text in parts.scripts if attrs.get("id") == "head"]
    return json.loads(text)


def _turns(parts):
    """The turns of every episode, out of the packs as the page's script reads them."""
    head = _head(parts)
    packs = {attrs["id"]: text for attrs, text in parts.scripts if attrs.get("type") == "application/gzip"}
    raw = [gzip.decompress(base64.b64decode(packs[f"pack-{i}"])) for i in range(len(packs))]
    assert [len(each) for each in raw] == head["sizes"]
    held = [json.loads(each) for each in raw]
    places = zip(head["columns"]["pack"], head["columns"]["place"], strict=True)
    return [None if pack < 0 else held[pack][place]["turns"] for pack, place in places]


@pytest.fixture
def run(tmp_path):
    """Two generations of two members and two evaluations."""
    population = {
        g: [episode(turn(f"g{g} m{m}"), generation=g, member=m, case=c) for m in (3, 5) for c in (0, 1)]
        for g in (0, 10)
    }
    held_out = {u: [episode(turn("a"), turn("b"), case=c, outcome="success") for c in range(3)] for u in (0, 11)}
    return view_runs.write_run(tmp_path / "run", population=population, held_out=held_out)


def test_all_episodes_and_turns_of_the_run_are_there(run):
    path = write_page(run)
    assert path == run / "view.html"
    parts = _parts(path)
    loaded, columns = Run.load(run), _head(parts)["columns"]
    expected = [(1, u, e) for u in (0, 11) for e in loaded.episodes(u, held_out=True)]
    expected += [(0, g, e) for g in (0, 10) for e in loaded.episodes(g)]
    assert list(zip(columns["held_out"], columns["generation"], strict=True)) == [(h, g) for h, g, _ in expected]
    for name in ("member", "case", "episode", "outcome", "reward"):
        assert columns[name] == [getattr(each, name) for _, _, each in expected]
    said = [[turn["text"] for turn in turns] for turns in _turns(parts)]
    assert said == [[turn.text for turn in each.turns] for _, _, each in expected]


def test_equal_runs_give_equal_pages(run):
    assert write_page(run).read_bytes() == write_page(run).read_bytes()
    assert not list(run.glob(".*"))


def test_hostile_text_stays_inside_its_block(tmp_path):
    said = turn(HOSTILE, **{HOSTILE: [HOSTILE, math.inf], "__proto__": 1})
    lost = episode(replace(said, reward=math.nan), outcome="error", error=HOSTILE, task_id=HOSTILE, member=0)
    run = view_runs.write_run(
        tmp_path / "run",
        population={0: [lost]},
        config={"preset": HOSTILE.replace("\ud800", ""), "description": "</script>"},
        summary={"stopped_because": HOSTILE, "status": "stopped"},
    )
    parts = _parts(write_page(run))
    assert [attrs.get("id") for attrs, _ in parts.scripts] == ["head", "pack-0", None]
    head = _head(parts)
    assert head["tasks"] == [HOSTILE] and head["errors"] == {"0": HOSTILE} and head["note"] == HOSTILE
    ((shown,),) = _turns(parts)
    assert shown["text"] == HOSTILE and shown["reward"] is None and shown["info"][HOSTILE] == [HOSTILE, "inf"]
    for attrs, text in parts.scripts:
        if "type" in attrs:
            assert text.isascii() and not set("<>&") & set(text)


def test_the_policy_allows_this_script_and_style_and_no_request(run):
    parts = _parts(write_page(run))
    rules = dict(rule.strip().split(" ", 1) for rule in parts.policy.split(";"))
    (script,), (style,) = [text for attrs, text in parts.scripts if not attrs], [text for _, text in parts.styles]
    for rule, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules.pop(rule) == f"'sha256-{digest}'"
    assert rules == {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}


def test_nothing_is_fetched_or_inserted_as_markup(run):
    text = write_page(run).read_text()
    assert set(re.findall(r"https?://[^\s\"']*", text)) == {"http://www.w3.org/2000/svg"}
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "@import"):
        assert word not in text, word
    for tag, attrs in _Parts(text).elements:
        assert not {"src", "href", "style"} & set(attrs) and not [n for n in attrs if n.startswith("on")], tag


def test_a_run_without_episodes_or_rows_has_a_page(tmp_path):
    head = _head(_parts(write_page(view_runs.write_run(tmp_path / "run"))))
    assert (head["columns"], head["charts"], head["members"], head["sizes"]) == ({}, [], {}, [])


def test_a_run_that_has_just_begun_has_a_page(tmp_path):
    run = view_runs.write_run(tmp_path / "run")
    (run / "summary.json").unlink()
    (run / "metrics.jsonl").write_text('{"generation": 0, "fit')
    assert _head(_parts(write_page(run)))["status"] == "starting"


def test_prompts_are_read_with_the_tokenizer_of_the_run(run, caplog):
    turns = _turns(_parts(write_page(run)))
    assert turns[0][0]["prompt"] == "<|im_start|>" and turns[0][0]["read"] == 1
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("builtin:sudoku-4x4", str(run / "gone")))
    parts = _parts(write_page(run))
    assert _turns(parts)[0][0]["prompt"] is None and not _head(parts)["decoded"]
    assert "stays hidden, for want of its tokenizer" in caplog.text


def _tabulated(episodes, decode=None, **limits):
    return tabulate([(False, each) for each in episodes], decode, lambda e: [None] * (len(e.turns) + 1), **limits)


def test_a_page_has_a_bound_and_says_what_is_left_out():
    episodes = [episode(turn("x" * 3000), case=case) for case in range(10)]
    packs = _tabulated(episodes, page_limit=10_000).columns["pack"]
    assert packs == [0] * packs.count(0) + [-1] * packs.count(-1) and packs.count(0) == 3
    assert -1 not in _tabulated(episodes).columns["pack"]
    late = [*episodes[:3], episode(turn("y" * 9000)), episode(turn("z"))]
    assert _tabulated(late, page_limit=11_000).columns["pack"] == [0, 0, 0, -1, -1]


def test_a_pack_is_opened_for_few_episodes_only(monkeypatch):
    monkeypatch.setattr(page_episodes, "_PACK", 10_000)
    table = _tabulated([episode(turn("x" * 3000)) for _ in range(10)])
    assert len(table.packs) == 4 and all(pack.size < 11_000 for pack in table.packs)


def test_a_text_has_a_bound(monkeypatch):
    monkeypatch.setattr(page_episodes, "TEXT_LIMIT", 10)
    table = _tabulated([episode(turn("x" * 25))], decode=lambda ids: "p" * 12)
    (held,) = json.loads(gzip.decompress(base64.b64decode(table.packs[0].text)))
    (shown,) = held["turns"]
    assert (shown["text"], shown["prompt"], shown["dropped"]) == ("x" * 10, "p" * 10, 17)


def test_best_and_worst_of_many():
    columns = {"held_out": [0] * 4, "generation": [0] * 4, "member": [6, 7, 8, 9], "reward": [0.5, 0.25, 0.75, 0.5]}
    assert [side["member"] for side in best_and_worst(columns, {})["0"]] == [8, 7]


def test_best_and_worst_of_equals_are_two_members():
    columns = {"held_out": [0, 0, 1], "generation": [0, 0, 0], "member": [1, 2, -1], "reward": [0.5, 0.5, 9.0]}
    assert [side["member"] for side in best_and_worst(columns, {})["0"]] == [1, 2]


def test_one_recorded_member_is_no_pair_nor_is_a_fault():
    columns = {"held_out": [0, 0, 0], "generation": [0, 1, 1], "member": [1, 1, 2], "reward": [0.5, 0.5, math.nan]}
    assert best_and_worst(columns, {}) == {}


def test_fitness_of_the_history_decides(run):
    row = {"generation": 0, "fitness": [0, 0, 0, 0.25, 0, 0.5]}
    (run / "history.jsonl").write_text('{"kind": "header"}\n' + json.dumps(row) + "\n")
    members = _head(_parts(write_page(run)))["members"]
    assert members["0"] == [{"member": 5, "score": 0.5}, {"member": 3, "score": 0.25}]
    assert [side["member"] for side in members["10"]] == [3, 5]


def test_curves_have_the_numbers_of_the_rows():
    rows = [
        {"generation": 0, "eval/solve_rate": 0.25, "eval/ci_low": 0.125, "eval/ci_high": 0.5},
        {"generation": 0, "fitness/mean": 1.0, "fitness/best": None, "reward": None},
        {"generation": 1, "fitness/mean": 2.0, "sigma": 0.5},
    ]
    drawn = {chart["title"]: chart["lines"] for chart in charts(rows)}
    assert list(drawn) == ["held-out solve rate", "fitness of the population", "sigma"]
    (rate,) = drawn["held-out solve rate"]
    assert (rate["x"], rate["y"], rate["low"], rate["high"]) == ([0], [0.25], [0.125], [0.5])
    (mean,) = drawn["fitness of the population"]
    assert (mean["name"], mean["x"], mean["y"]) == ("mean", [0, 1], [1.0, 2.0])


@pytest.mark.parametrize(
    ("board", "drawn"), [("ab\ncd", "ab\ncd"), (["ab", "cd"], "ab\ncd"), ([], None), ([1], None), (7, None), ("", None)]
)
def test_an_environment_may_draw_a_board(board, drawn):
    config = from_dict({"env": {"name": "echo"}})
    assert episode_boards(episode(turn("x", board=board)), config, None) == [None, drawn]


def test_a_sudoku_is_drawn_from_its_prompt():
    config = from_dict({"env": view_runs.SUDOKU})
    played = episode(turn("set 1 3 3"), turn("what?"))
    boards = episode_boards(played, config, lambda ids: "user\n12.4\n3412\n2143\n4321\n")
    assert boards == ["12.4\n3412\n2143\n4321", *["1234\n3412\n2143\n4321"] * 2]
    assert episode_boards(played, config, None) == episode_boards(played, config, str) == [None] * 3


@pytest.mark.parametrize("name", ["page.txt", "none/page.html", "page"])
def test_a_page_that_cannot_be_written_is_refused(tmp_path, name):
    with pytest.raises(EsoptError, match=r"--out .*(must end in|is not a folder)"):
        check_page(tmp_path / name)
