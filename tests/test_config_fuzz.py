"""Whatever a user writes into a config is a run that can be written down and read again, or one clear line."""

import dataclasses
import math
import re
import string
import typing

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esopt_jax.config import Config, to_yaml
from esopt_jax.config_reader import from_dict, load_config
from esopt_jax.errors import EsoptError

SETTINGS = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
lengths = pytest.mark.parametrize("examples", [150, pytest.param(3_000, marks=pytest.mark.slow)])

SECTIONS = {field.name: field.default_factory for field in dataclasses.fields(Config) if field.name not in ("preset",)}
SECTIONS = {name: factory for name, factory in SECTIONS.items() if isinstance(factory, type)}
KEYS = {f"{section}.{field.name}" for section, kind in SECTIONS.items() for field in dataclasses.fields(kind)}
KEYS |= {"preset", "description"}
HINTS = {section: typing.get_type_hints(kind) for section, kind in SECTIONS.items()}
CHOICES = sorted(
    {c for h in HINTS.values() for hint in h.values() for c in typing.get_args(hint) if isinstance(c, str)}
)


# --- what users write, and what nobody would ---


@st.composite
def near(draw, words):
    """A word of `words`, mostly; sometimes with a letter too many, too few, or in another case."""
    word = draw(st.sampled_from(sorted(words)))
    at = draw(st.integers(0, len(word)))
    change = draw(st.integers(0, 39))
    changes = {
        0: word[:at] + word[at + 1 :],
        1: word[:at] + "_" + word[at:],
        2: word.upper(),
        3: word + draw(st.text()),
    }
    return changes.get(change, word)


numbers = st.one_of(
    st.integers(-3, 70),
    st.integers(),
    st.sampled_from([30, 400, 5000]).map(lambda digits: 10**digits),
    st.floats(0, 1),
    st.floats(),
)
scalars = st.one_of(
    numbers,
    numbers.filter(lambda n: abs(n) < 1e50).map(str),
    st.booleans(),
    st.none(),
    st.sampled_from([*CHOICES, "", "1e-3", "0x", "nan", "-inf", "1_0", " 1 ", "yes", "\n", "\ud800", "\x85", "\ufeff"]),
    st.text(),
    st.dates(),
    st.binary(max_size=4),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=4), st.integers(-9, 9), st.none(), st.booleans()), inner, max_size=3
        ),
        st.sets(st.integers(), max_size=2),
    ),
    max_leaves=5,
)


@st.composite
def likely(draw, section, key):
    """A value of the right kind for most keys, so that many configs are valid."""
    if draw(st.integers(0, 19)) == 0:
        return draw(values)
    default = getattr(SECTIONS[section](), key)
    hint = HINTS[section][key]
    if typing.get_origin(hint) is typing.Literal:
        return draw(near(typing.get_args(hint)) if draw(st.booleans()) else st.sampled_from(typing.get_args(hint)))
    if isinstance(default, bool):
        return draw(st.booleans())
    if isinstance(default, int):
        return draw(st.integers(0, 64))
    if isinstance(default, dict):
        names = st.sampled_from(["matrix", "norm", "x"]) if key == "sigma_multipliers" else st.text(max_size=4)
        return draw(st.dictionaries(names, st.floats(0, 2) if key == "sigma_multipliers" else values, max_size=2))
    if isinstance(default, tuple):
        return draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    return draw(st.floats(0, 1)) if isinstance(default, float | None) else draw(st.text())


@st.composite
def trees(draw):
    tree = {}
    for section in draw(st.lists(st.sampled_from(sorted(SECTIONS)), max_size=3, unique=True)):
        keys = draw(st.lists(st.sampled_from(sorted(HINTS[section])), max_size=3, unique=True))
        found = {draw(near([key])): draw(likely(section, key)) for key in keys}
        tree[draw(near([section]))] = draw(values) if draw(st.integers(0, 19)) == 0 else found
    for key in draw(st.lists(st.sampled_from(["preset", "description"]), max_size=2, unique=True)):
        tree[draw(near([key]))] = draw(st.one_of(st.text(), values))
    return tree


def text_of(value, write=str):
    """As text, also when an integer in it is too long for Python to write in decimal."""
    try:
        return write(value)
    except ValueError:
        return "es: {seed: 0x" + "f" * 5000 + "}"


yaml_text = st.one_of(
    st.text(alphabet="esigma:.{}[]-&*!|>?#'\"% \n\t019_~=<,@`", max_size=60),
    st.text(max_size=40),
    st.lists(
        st.tuples(near([*SECTIONS, "preset"]), near(KEYS).map(lambda k: k.split(".")[-1]), st.text(max_size=12)).map(
            lambda t: f"{t[0]}:\n  {t[1]}: {t[2]}\n"
        ),
        max_size=3,
    ).map("".join),
    trees().map(lambda tree: text_of(tree, lambda tree: yaml.dump(tree, allow_unicode=True))),
)


# --- the property ---


def check(read) -> Config | None:
    """What `read` gives is a config that survives being written, or one line that names a key of what was read."""
    try:
        config = read()
    except EsoptError as fault:
        message = str(fault)
        assert len(message.splitlines()) == 1 and message.isprintable(), message
        assert len(message) < 20_000
        return None
    written = to_yaml(config)
    again = from_dict(yaml.safe_load(written))
    assert to_yaml(again) == written
    assert again == config or ".nan" in written  # not a number differs from itself
    return config


def named(message: str) -> set[str]:
    """The known keys and sections that a message names."""
    return {key for key in (*KEYS, *SECTIONS) if re.search(rf"(^|[\s'(]){re.escape(key)}\b", message)}


@lengths
def test_random_trees(examples):
    outcomes = []

    @settings(SETTINGS, max_examples=examples)
    @given(trees())
    def run(tree):
        outcomes.append(check(lambda: from_dict(tree)))

    run()
    valid = sum(config is not None for config in outcomes)
    assert 0.1 < valid / len(outcomes) < 0.9, "the trees must be of both kinds"


@lengths
def test_random_files(examples, tmp_path):
    file = tmp_path / "mine.yaml"

    @settings(SETTINGS, max_examples=examples)
    @given(yaml_text)
    def run(text):
        file.write_bytes(text.encode(errors="surrogatepass"))
        config = check(lambda: load_config(file))
        if config is not None:
            file.write_text(to_yaml(config), encoding="utf-8")
            assert to_yaml(load_config(file)) == to_yaml(config)

    run()


@lengths
def test_random_overrides(examples):
    texts = st.one_of(values.map(text_of), st.text(), st.text(alphabet="[]{}:,-&*! 0129.e_", max_size=12))

    @settings(SETTINGS, max_examples=examples)
    @given(st.lists(st.one_of(st.tuples(near(KEYS), texts).map("=".join), st.text(max_size=20)), max_size=3))
    def run(overrides):
        check(lambda: load_config("quickstart", overrides))

    run()


# --- no wrong acceptance: what some keys allow, said a second time ---


def whole(value, least, below=2**31):
    return type(value) is int and least <= value < below


def real(value, low, high=math.inf, *, above=False):
    """A finite number of `low .. high`, or above `low`, as a number or as its decimal text."""
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?([0-9]+(_[0-9]+)*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*", value):
            return False
        try:
            value = float(value)
        except ValueError:
            return False
    if type(value) not in (int, float) or abs(value) > 1e308 or value != value:
        return False
    return low <= value <= high and (not above or value > low)


ALLOWED = {
    "es.population_size": lambda v: whole(v, 2),
    "es.generations": lambda v: whole(v, 0),
    "es.seed": lambda v: whole(v, 0, 2**32),
    "es.rank": lambda v: whole(v, 1),
    "es.members_per_pass": lambda v: whole(v, 0, 33),  # the default population has 32
    "es.sigma": lambda v: real(v, 0, above=True),
    "es.alpha": lambda v: real(v, 0),
    "es.alpha_end": lambda v: v is None or real(v, 0),
    "es.antithetic": lambda v: type(v) is bool,
    "es.plan": lambda v: v in ("full", "low_rank"),
    "es.control": lambda v: v is None or v in ("none", "shuffled_rewards", "zero_update"),
    "es.shaping": lambda v: v is None or v in ("zscore", "centered_rank", "none"),
    "rollout.cases": lambda v: whole(v, 1),
    "rollout.temperature": lambda v: real(v, 0),
    "rollout.top_p": lambda v: real(v, 0, 1, above=True),
    "rollout.min_p": lambda v: real(v, 0, 1) and float(v) < 1,
    "rollout.thinking": lambda v: type(v) is bool,
    "model.dtype": lambda v: v in ("float32", "bfloat16"),
    "eval.every": lambda v: whole(v, 0),
    "train.mesh": lambda v: type(v) in (list, tuple) and len(v) == 2 and all(whole(n, 1, 10**100) for n in v),
    "train.keep_checkpoints": lambda v: whole(v, 1),
    "log.progress": lambda v: v is None or v in ("auto", "rich", "plain", "none"),
}


CORNERS = [-1, 0, 1, 2, 31, 32, 33, 0.0, 1.0, -0.0, 2**31 - 1, 2**31, 2**32 - 1, 2**32, *CHOICES, None, True, [1, 1]]


def judge(key, value):
    """`value` alone is accepted if and only if the table says so; else the message names the key."""
    section, name = key.split(".")
    config = check(lambda: from_dict({section: {name: value}}))
    allowed = bool(isinstance(value, str | int | float | list | tuple | type(None)) and ALLOWED[key](value))
    assert (config is not None) == allowed, (key, value)
    if config is None:
        with pytest.raises(EsoptError) as caught:
            from_dict({section: {name: value}})
        assert key in named(str(caught.value)), str(caught.value)


@lengths
@pytest.mark.parametrize("key", ALLOWED)
def test_a_key_takes_what_is_allowed_and_nothing_else(key, examples):
    for value in CORNERS:
        judge(key, value)
    settings(SETTINGS, max_examples=max(40, examples // 10))(
        given(st.one_of(likely(*key.split(".")), scalars, values))(lambda value: judge(key, value))
    )()


@lengths
def test_an_unknown_key_is_named_and_never_taken(examples):
    words = st.text(alphabet=string.ascii_lowercase + "_", min_size=1, max_size=12)

    @settings(SETTINGS, max_examples=examples)
    @given(st.sampled_from(sorted(SECTIONS)), st.one_of(words, near(KEYS).map(lambda k: k.split(".")[-1])))
    def run(section, name):
        if name in HINTS[section]:
            return
        with pytest.raises(EsoptError) as caught:
            from_dict({section: {name: 1}})
        assert str(caught.value).startswith(f"unknown key '{section}.")

    run()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("es: {sigma: 1, sigma: 2}", "'sigma' is there twice"),
        ("es: {sigma: 1}\nes: {alpha: 1}", "'es' is there twice"),
        ("env: {options: {day: 2020-01-01}}", "env.options.day is datetime.date(2020, 1, 1)"),
        ("env: {options: {sets: !!set {a, b}}}", "env.options.sets"),
        ("env: {options: &a {deep: *a}}", "env.options"),
        ("env: {options: {1: a, '1': b}}", "env.options"),
        ("env: {options: {a: {null: b}}}", "env.options.a"),
        ("es: {seed: " + "1" * 5000 + "}", "cannot read"),
        ("es: {seed: 0x" + "f" * 5000 + "}", "es.seed is"),
        ("es: {sigma: 0x" + "f" * 5000 + "}", "es.sigma is"),
        ("preset: 0x" + "f" * 5000, "preset is"),
        ("es: {plan: 0x" + "f" * 5000 + "}", "es.plan is"),
        ("es: {sigma: !!binary MQ==}", "es.sigma is b'1'; it must be a number"),
        ("es: {seed: !!bool x}", "cannot read"),
        ("es: {seed: 2020-99-99}", "cannot read"),
        ("es: " + "[" * 1000, "cannot read"),
        ("env: {options: {a: " + "[" * 150 + "]" * 150 + "}}", "env.options"),
        ('description: "\\ud800"', "description is '\\ud800'"),
        ('"es\\nx": 1', "unknown key 'es x'"),
    ],
    ids=lambda value: value[:40],
)
def test_what_the_fuzzing_found(text, message, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(EsoptError) as caught:
        load_config(file)
    assert message in str(caught.value) and len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ["a\x85b", "a\u2028b", "a\u2029b", "a\ufeffb", "a\x07b", "é \U0001f600"])
def test_every_text_comes_back_from_a_run_folder(text, tmp_path):
    config = from_dict({"description": text, "env": {"options": {"a": text}}})
    (tmp_path / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    assert load_config(tmp_path / "config.yaml") == config
