"""The page of a run in headless Chromium: filters, lists, comparisons, curves, and what is done without a mouse."""

import re

import pytest
import view_runs
from view_runs import episode, turn

from esopt_jax.models.load import resolve_folder
from esopt_jax.reporting import page as page_module
from esopt_jax.reporting.page import write_page
from esopt_jax.rollouts.chat import load_chat
from esopt_jax.training.run import Run


@pytest.fixture(scope="module")
def sudoku(tmp_path_factory):
    """Three generations of two members on four cases, and two evaluations of five."""
    ids = load_chat(resolve_folder("builtin:sudoku-4x4"), thinking=True)
    (prompt,) = ids.prompts([[{"role": "user", "content": "12.4\n3412\n2143\n432."}]])

    def play(number, **fields):
        won = number % 3 == 0
        last = (
            turn("set 1 3 3", prompt=prompt, reward=float(won)) if won else turn("what?", prompt=prompt, invalid=True)
        )
        first = turn("set 4 4 4", prompt=prompt, truncated=number % 4 == 0)
        return episode(first, last, outcome="success" if won else "failure", **fields)

    return view_runs.write_run(
        tmp_path_factory.mktemp("sudoku") / "run",
        population={
            g: [play(5 * g + m + c, generation=g, member=m, case=c) for m in (1, 4) for c in range(4)] for g in range(3)
        },
        held_out={u: [play(c + u, case=c) for c in range(5)] for u in (0, 3)},
        rows=[{"generation": g, "fitness/mean": g / 4, "fitness/best": g / 2, "sigma": 0.5} for g in range(3)],
    )


@pytest.fixture(scope="module")
def page(browser, sudoku):
    """The tab with that run in it."""
    browser.open(write_page(sudoku))
    return browser


def _all(sudoku):
    """`(held_out, generation, episode)` of everything recorded."""
    run = Run.load(sudoku)
    held_out = [(True, u, each) for u in (0, 3) for each in run.episodes(u, held_out=True)]
    return held_out + [(False, g, each) for g in range(3) for each in run.episodes(g)]


FILTERS = {
    "": lambda h, g, e: True,
    "set=population": lambda h, g, e: not h,
    "set=heldout": lambda h, g, e: h,
    "set=heldout&generation=3": lambda h, g, e: h and g == 3,
    "generation=0": lambda h, g, e: g == 0,
    "member=4&generation=1": lambda h, g, e: e.member == 4 and g == 1,
    "member=-1": lambda h, g, e: e.member == -1,
    "case=2": lambda h, g, e: e.case == 2,
    "outcome=success": lambda h, g, e: e.outcome == "success",
    "outcome=error": lambda h, g, e: False,
    "flag=invalid": lambda h, g, e: any(turn.invalid for turn in e.turns),
    "flag=truncated&set=population": lambda h, g, e: not h and any(turn.truncated for turn in e.turns),
    "task=SK-3": lambda h, g, e: e.task_id == "task-3",
    "flag=toString&set=constructor": lambda h, g, e: True,
    "generation=%": lambda h, g, e: False,
}


@pytest.mark.parametrize("view", FILTERS)
def test_filters_show_what_they_say(page, sudoku, view):
    expected = [each for each in _all(sudoku) if FILTERS[view](*each)]
    page.go(f"view=episodes&{view}")
    assert page.texts("#shown") == [f"{len(expected)} of {len(_all(sudoku))} episodes"]
    rows = [[f"{'held-out' if h else 'gen'} {g}", e.task_id, e.outcome] for h, g, e in expected]
    parts = "['.when', '.task', '.badge'].map((part) => row.querySelector(part).textContent)"
    assert page.run(f"[...document.querySelectorAll('.row')].map((row) => {parts})") == rows
    assert page.texts("h2 bdi") == [row[1] for row in rows[:1]]


def test_a_control_of_the_filters_changes_the_address_and_keeps_the_focus(page):
    page.go("view=episodes&set=population&open=12")
    choose = "(s => { s.focus(); s.value = 'success'; s.dispatchEvent(new Event('change', {bubbles: true})) })"
    page.run(f"{choose}(document.querySelector('select[name=outcome]'))")
    page.wait("location.hash === '#view=episodes&set=population&outcome=success'")
    page.settle()
    assert set(page.texts(".row .badge")) == {"success"}
    assert page.run("document.activeElement.name") == "outcome"


def test_the_list_goes_by_keys(page):
    page.go("view=episodes&set=heldout")
    page.run("document.querySelector('.list').focus()")
    places = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "End", "ArrowDown", "Home"):
        page.press(key)
        page.run("new Promise((r) => setTimeout(r, 0))")
        page.settle()
        (place,) = page.run(
            "[...document.querySelectorAll('[aria-selected=true]')].map((e) => Number(e.dataset.place))"
        )
        assert page.run("document.querySelector('.list').getAttribute('aria-activedescendant')") == f"row-{place}"
        assert page.texts("h2 bdi") == page.texts("[aria-selected=true] .task")
        places.append(place)
    assert places == [1, 2, 1, 9, 9, 0]


def test_every_turn_is_shown_with_its_board(page):
    page.go("view=episodes&set=heldout&case=0&generation=0")
    assert page.texts(".turn h3") == ["Turn 1cut at rollout.max_new_tokensreward 0", "Turn 2reward 1"]
    assert page.texts(".said.answer") == ["set 4 4 4", "set 1 3 3"]
    assert all("12.4\n3412" in prompt for prompt in page.texts(".said.prompt"))
    boards = page.run(
        "[...document.querySelectorAll('.board')].map((b) => [...b.querySelectorAll('td')].map((c) => c.textContent))"
    )
    assert ["".join(cells) for cells in boards] == ["12 4341221434324", "1234341221434324"]
    assert page.run("document.querySelectorAll('.board')[1].querySelectorAll('.new').length") == 1
    # the new 4 stands in a row, a column and a box that had one each
    assert page.run("document.querySelectorAll('.board')[0].querySelectorAll('.clash').length") == 4
    assert page.texts(".verdict") == ["success reward 1 in 2 turns"]


def test_an_invalid_turn_is_marked(page):
    page.go("view=episodes&set=heldout&case=1&generation=0")
    assert page.texts(".flag.bad") == ["invalid"] and page.texts(".said.bad") == ["what?"]


def test_best_beside_worst(page, sudoku):
    for generation in range(3):
        rewards = {}
        for _, _, each in (e for e in _all(sudoku) if not e[0] and e[1] == generation):
            rewards.setdefault(each.member, []).append(each.reward)
        best, worst = sorted(rewards, key=lambda m: -sum(rewards[m]))
        page.go(f"view=members&generation={generation}")
        assert page.texts(".side") == [f"best: member {best}", f"worst: member {worst}"]
        assert page.texts("#shown") == ["4 cases:"]
        wheres = page.texts(".where")[-2:]
        assert wheres == [f"case 0, member {m}, generation {generation}, episode 0" for m in (best, worst)]


def test_before_beside_after(page):
    page.go("view=heldout&open=2.0")
    assert page.texts(".side") == ["before: 0 updates", "after: 3 updates"]
    assert page.texts("h2 bdi") == ["task-2", "task-2"]
    changes = {"": 5, "left": 0, "right": 0, "same": 5}  # three updates later the same cases are won
    for show, count in changes.items():
        page.go(f"view=heldout&show={show}")
        assert page.texts("#shown") == [f"{count} cases:"]


def test_curves_are_drawn_and_read_by_keys(page):
    page.go("view=overview")
    assert page.texts("figcaption") == ["fitness of the population", "sigma"]
    assert page.run("document.querySelectorAll('polyline')[0].getAttribute('points').split(' ').length") == 3
    page.run("document.querySelector('.chart svg').focus()")
    for _ in range(3):
        page.press("ArrowRight")
    (legend, *_) = page.texts(".legend")
    assert legend == "generation 2 mean 0.5 best 1"
    page.press("Enter")
    page.wait("location.hash === '#view=episodes&generation=2'")
    page.settle()
    assert set(page.texts(".row .when")) == {"gen 2"}


def test_ten_thousand_turns_are_not_drawn_at_once(browser, tmp_path):
    long = episode(*(turn(f"turn {n}", board=["ab", "cd"]) for n in range(5000)))
    many = [episode(turn("x"), case=case) for case in range(5000)]
    run = view_runs.write_run(tmp_path / "run", population={0: [long, *many]}, config={"env": {"name": "echo"}})
    browser.open(write_page(run), "view=episodes")
    browser.settle()
    assert browser.texts("#shown") == ["5,001 of 5,001 episodes"]
    assert browser.run("document.querySelectorAll('.row').length") < 100
    assert browser.run("document.querySelectorAll('.turn').length") == 40
    browser.run("document.querySelector('.turns > .more').click()")
    assert browser.texts(".said.answer") == [f"turn {n}" for n in range(80)]
    browser.run("document.querySelector('.list').scrollTop = 1e9")
    browser.wait("document.getElementById('row-5000')")
    assert browser.run("document.querySelectorAll('.row').length") < 100
    browser.go("view=episodes&open=4999")
    assert browser.texts("h2 bdi") == ["task-4998"] == browser.texts("[aria-selected=true] .task")


def test_damaged_turns_are_said_to_be(browser, sudoku):
    path = write_page(sudoku)
    text = path.read_text()
    size = int(re.search(r'"sizes":\[(\d+)', text)[1])
    for wrong, what in ((size - 1, "is larger than this page says"), (size + 1, "is cut short")):
        damaged = path.with_name("damaged.html")
        damaged.write_text(text.replace(f'"sizes":[{size}', f'"sizes":[{wrong}'))
        browser.open(damaged, "view=episodes")
        browser.settle()
        (said,) = browser.texts(".turns")
        assert said.startswith("These turns cannot be read") and what in said


def test_an_episode_that_the_page_does_not_hold_says_where_it_is(browser, sudoku, monkeypatch):
    tabulate = page_module.tabulate
    monkeypatch.setattr(page_module, "tabulate", lambda *parts: tabulate(*parts, page_limit=4000))
    browser.open(write_page(sudoku), "view=episodes&open=33")
    browser.settle()
    assert f"esopt play --file {sudoku}/trajectories/gen_00002.jsonl.gz --index 7" in browser.texts(".turns .notice p")
    assert "are not in this page" in browser.texts("#notes")[0]
