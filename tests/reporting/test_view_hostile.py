"""Hostile text in the page of a run, in headless Chromium: it is shown, and can do nothing."""

import json
import re

import pytest
import view_runs
from view_runs import episode, turn

from esopt_jax.reporting import page as page_module
from esopt_jax.reporting.page import write_page

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


def _seen(text):
    """What stands on the page for a text."""
    hidden = "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    return re.sub(hidden, lambda match: match[0].encode("unicode_escape").decode(), text)


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
        config={"preset": MOVED + odd[0], "description": " ".join(odd), "env": {"name": "echo"}},
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
    assert browser.run("document.querySelector('.said.answer').textContent.length") == 6 * len(MANY)


def test_text_is_isolated_and_left_to_right(browser, hostile):
    browser.open(hostile, f"view=episodes&open={TEXTS.index(MOVED)}")
    browser.settle()
    look = "(s => (c => [c.direction, c.unicodeBidi])(getComputedStyle(document.querySelector(s))))"
    assert browser.run(f"{look}('.said.answer')") == ["ltr", "isolate"]
    assert browser.run(f"{look}('h2 bdi')")[1] == "isolate"
    moving = "[\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]"
    assert not browser.run(f"/{moving}/.test(document.body.innerText + document.title)")
    assert "<script>" in browser.run("document.title")
