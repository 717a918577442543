"""The page of a run in headless Chromium: what it shows, and that no text in it can do anything."""

import json
import os
import re

import chromium
import pytest
import view_runs
from view_runs import episode, turn

from esopt_jax.models.load import resolve_folder
from esopt_jax.reporting import page as page_module
from esopt_jax.reporting.page import write_page
from esopt_jax.rollouts.chat import load_chat

MARKUP = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 2</script>",
    "</pre></article><img src=x onerror='window.pwned = 3'><svg onload='window.pwned = 4'></svg>",
    "<iframe srcdoc='<script>parent.pwned = 5</script>'></iframe><a href='javascript:pwned=6' autofocus>x</a>",
    "<style>body { display: none }</style><meta http-equiv=refresh content='0;url=http://example.invalid/'>",
    "<link rel=stylesheet href=http://example.invalid/a.css><base href=http://example.invalid/>",
    "<!--<script>",
    "&lt;b&gt; &amp; {{script}} ${window.pwned = 7} <![CDATA[ ]]>",
    "<details ontoggle='window.pwned = 8' open><input autofocus onfocus='window.pwned = 9'></details>",
)
MOVED = "user\u202egnp.exe\u202c \u2066\u05d0\u05d1\u2069 \u0645\u0631\u062d\u0628\u0627 \u200f.\u200b"
CONTROL = "a\x00b\x1b[2J\rc\x07\x7f\x85\u2028\u2029\ufeff\ud800|\udc00\td\ne"
LONG = "<script>window.pwned = 10</script>" + "x" * 1_000_000
MANY = "\u202e" * 1_000_000
TEXTS = (*MARKUP, MOVED, CONTROL, LONG, MANY)
FOLD = 4000


@pytest.fixture(scope="module")
def browser():
    """One tab for all tests."""
    if chromium.find_chromium() is None:
        (pytest.fail if os.environ.get("ESOPT_REQUIRE_PARITY") else pytest.skip)(chromium.HINT)
    with chromium.opened_chromium() as page:
        yield page


def _seen(text):
    """What stands on the page for a text."""

    def stand_in(match):
        code = ord(match[0])
        return chr(0x2400 + code) if code < 32 else "\u2421" if code == 127 else f"[U+{code:04X}]"

    hidden = "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    return re.sub(hidden, stand_in, text)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run in which every text is hostile, read and written, and everything else that a run may say is too."""
    odd = [text.replace("\ud800", "").replace("\udc00", "") for text in TEXTS[:-2]]
    played = [
        episode(
            turn(text, prompt=(number,), invalid=number % 2 == 0, board=text, **{text[:40]: text, "__proto__": text}),
            case=number,
            member=number,
            task_id=text,
            outcome="error",
            error=text,
        )
        for number, text in enumerate(TEXTS)
    ]
    run = view_runs.write_run(
        tmp_path_factory.mktemp("hostile") / "<img src=x onerror='window.pwned = 11'>",
        population={0: played},
        config={"preset": odd[0], "description": " ".join(odd), "env": {"name": "echo"}},
        summary={"status": "stopped", "stopped_because": " ".join(TEXTS[:-2])},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "run_decoder", lambda _: lambda ids: TEXTS[ids[0]])
        return write_page(run)


def _harmless(browser, path):
    """Nothing ran, nothing was asked for, nothing stands on the page but the page's own elements."""
    assert browser.run("window.pwned") is None
    assert browser.requests == [browser.run("location.href.split('#')[0]")]
    assert path.name in browser.requests[0] and browser.errors == []
    kinds = "script, style, meta, title, link, base, img, iframe, object, embed"
    found = browser.run(f"[...document.querySelectorAll('{kinds}')].map((e) => e.tagName + (e.type || ''))")
    packs = browser.run("head.sizes.length")
    own = ["META"] * 4 + ["TITLE", "STYLE", "SCRIPTapplication/json", *["SCRIPTapplication/gzip"] * packs, "SCRIPT"]
    assert sorted(found) == sorted(own)
    assert browser.run("document.querySelectorAll('.said :not(.hidden-char), bdi :not(.hidden-char)').length") == 0
    assert browser.run("[...document.querySelectorAll('*')].every((e) => ![...e.attributes].some(isActive))")


IS_ACTIVE = "function isActive(a) { return /^(on|src)/.test(a.name) || /script:/.test(a.value); }"


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_hostile_text_is_shown_and_does_nothing(browser, hostile, number):
    browser.open(hostile, f"view=episodes&open={number}")
    browser.run(IS_ACTIVE)
    browser.settle()
    text = TEXTS[number]
    for kind in ("prompt", "answer"):
        (shown,) = browser.texts(f".said.{kind}")
        assert shown == _seen(text[:FOLD])
    assert browser.texts("h2 bdi") == [_seen(text[:400]) + ("…" if len(text) > 400 else "")]
    assert _seen(text[:40]) in browser.texts("dt bdi") and "__proto__" in browser.texts("dt bdi")
    for view in ("overview", "members", "heldout", f"episodes&open={number}&set=population"):
        browser.go(f"view={view}")
        _harmless(browser, hostile)


def test_the_check_of_harm_sees_harm(browser, hostile):
    browser.open(hostile)
    browser.run(IS_ACTIVE)
    browser.run("document.getElementById('description').innerHTML = '<img src=x>'; 0")
    with pytest.raises(AssertionError):
        _harmless(browser, hostile)


def test_the_policy_keeps_even_inserted_markup_from_running(browser, hostile):
    browser.open(hostile)
    run = "<img src=x onerror='window.pwned = 12'><iframe srcdoc='<script>parent.pwned = 13</script>'></iframe>"
    browser.run(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(run)}); 0")
    browser.run("Object.assign(document.createElement('script'), {textContent: 'window.pwned = 14'}); 0")
    browser.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'pwned = 1'})); 0")
    assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'went', () => 'refused')") == "refused"
    browser.wait("performance.now() > 0")
    assert browser.run("window.pwned") is None
    assert any("Content Security Policy" in error for error in browser.errors)


def test_a_long_text_is_folded_and_shown_on_request(browser, hostile):
    browser.open(hostile, f"view=episodes&open={TEXTS.index(LONG)}")
    browser.settle()
    assert browser.run("document.querySelector('.said.answer').textContent.length") == FOLD
    assert f"show all {len(LONG):,} characters" in browser.texts(".folded button")
    browser.run("document.querySelector('.answer + button').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('.said.answer').textContent") == LONG
    assert browser.run("document.activeElement.className") == "said answer"


def test_a_long_text_of_hidden_characters_is_shown_too(browser, hostile):
    browser.open(hostile, f"view=episodes&open={TEXTS.index(MANY)}")
    browser.settle()
    assert browser.run("document.querySelectorAll('.hidden-char').length") < 20_000
    browser.run("document.querySelector('.answer + button').click()")
    assert browser.run("document.querySelector('.said.answer').textContent.length") == 8 * len(MANY)


def test_text_is_isolated_and_left_to_right(browser, hostile):
    browser.open(hostile, f"view=episodes&open={TEXTS.index(MOVED)}")
    browser.settle()
    look = "(s => (c => [c.direction, c.unicodeBidi])(getComputedStyle(document.querySelector(s))))"
    assert browser.run(f"{look}('.said.answer')") == ["ltr", "isolate"]
    assert browser.run(f"{look}('h2 bdi')")[1] == "isolate"
    moving = "[\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]"
    assert not browser.run(f"/{moving}/.test(document.querySelector('main').textContent + document.title)")


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
    from esopt_jax.training.run import Run

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
    for wrong in (size - 1, size + 1):
        damaged = path.with_name("damaged.html")
        damaged.write_text(text.replace(f'"sizes":[{size}', f'"sizes":[{wrong}'))
        browser.open(damaged, "view=episodes")
        browser.settle()
        assert "These turns cannot be read" in browser.texts(".turns")[0]


def test_an_episode_that_the_page_does_not_hold_says_where_it_is(browser, sudoku, monkeypatch):
    tabulate = page_module.tabulate
    monkeypatch.setattr(page_module, "tabulate", lambda *parts: tabulate(*parts, page_limit=4000))
    browser.open(write_page(sudoku), "view=episodes&open=33")
    browser.settle()
    assert f"esopt play --file {sudoku}/trajectories/gen_00002.jsonl.gz --index 7" in browser.texts(".turns .notice p")
    assert "are not in this page" in browser.texts("#notes")[0]
