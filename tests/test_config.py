"""The schema: every preset loads, every mistake is named with its fix."""

import dataclasses
import hashlib
import json

import pytest
import yaml

from esopt_jax.config import INCIDENTAL, Config, RolloutConfig, config_hash, to_dict, to_yaml
from esopt_jax.config_problems import problems
from esopt_jax.config_reader import from_dict, load_config, preset_names
from esopt_jax.errors import EsoptError


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_survives_a_round_trip(name):
    config = load_config(name)
    assert config.description
    assert from_dict(yaml.safe_load(to_yaml(config))) == config


def test_precedence_is_defaults_then_file_then_overrides(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("es: {sigma: 1e-3, alpha: 0.5}\n")
    config = load_config(file, ["es.alpha=0.25", "train.mesh=[4,1]", "env.options.mask=5"])
    assert (config.es.sigma, config.es.alpha, config.es.rank) == (1e-3, 0.25, Config().es.rank)
    assert config.train.mesh == (4, 1)
    assert config.env.options == {"mask": 5}
    assert config.preset == "mine"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("es.sigmma=1", "unknown key 'es.sigmma': did you mean 'sigma'?"),
        ("ess.sigma=1", "unknown key 'ess': did you mean 'es'?"),
        ("es.population_size=0", "es.population_size is 0; it must be at least 2"),
        ("es.sigma=-1", "es.sigma is -1.0; it must be a finite number, 0 or more"),
        ("es.sigma=nan", "es.sigma is nan"),
        ("es.sigma=0", "es.sigma is 0.0; it must be above 0"),
        ("es.sigma_end=0", "es.sigma_end is 0"),
        ("es.seed=-1", "es.seed is -1; it must be in 0 .. 2^32-1"),
        (f"es.population_size={2**31}", "es.population_size is 2147483648; it must be below 2^31"),
        (f"eval.repeats={10**30}", "it must be below 2^31"),
        ("preset=''", "preset is ''; it must be a name"),
        ("es.population_size=2.5", "es.population_size is 2.5; it must be a whole number"),
        ("es.population_size=true", "it must be a whole number"),
        ("es.antithetic=1", "it must be true or false"),
        ("es.plan=lowrank", "es.plan is 'lowrank'; did you mean 'low_rank'?"),
        ("es=3", "es is 3; it must be a section with keys"),
        ("es.sigma_multipliers.norms=1", "groups are adapter, conv, embedding, gate, matrix, norm"),
        ("rollout.top_p=0", "rollout.top_p is 0.0; it must be above 0 and at most 1"),
        ("train.mesh=[1]", "it must be a list of 2 values"),
        ("es.sigma", "not of the form section.key=value"),
    ],
)
def test_a_mistake_is_one_clear_line(override, message):
    with pytest.raises(EsoptError) as caught:
        load_config("quickstart", [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_problems_are_reported_at_once():
    with pytest.raises(EsoptError) as caught:
        load_config("quickstart", ["es.population_size=1", "rollout.cases=0", "eval.repeats=0"])
    assert all(key in str(caught.value) for key in ("es.population_size", "rollout.cases", "eval.repeats"))


def test_odd_population_needs_no_antithetic():
    assert not problems(load_config("quickstart", ["es.population_size=5"]))
    with pytest.raises(EsoptError, match=r"even when es\.antithetic is true"):
        load_config("quickstart", ["es.population_size=5", "es.antithetic=true"])


@pytest.mark.parametrize("text", ["es: [1, 2", "- 1\n- 2", "es: 1e", "\x00", "a: &a [*a]"])
def test_broken_files_are_errors_not_tracebacks(tmp_path, text):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(EsoptError):
        load_config(file)


def test_unknown_preset_names_the_nearest():
    with pytest.raises(EsoptError, match="did you mean 'quickstart'"):
        load_config("quikstart")


def test_file_name_that_the_system_refuses_is_one_clear_error():
    with pytest.raises(EsoptError, match="does not exist"):
        load_config("x" * 5000 + ".yaml")


def test_hash_covers_what_changes_the_result_only():
    base = load_config("quickstart")
    assert config_hash(load_config("quickstart", ["log.progress=plain"])) == config_hash(base)
    assert config_hash(load_config("quickstart", ["es.seed=1"])) != config_hash(base)


def test_a_key_that_came_later_counts_only_where_it_is_used():
    """So that runs that were recorded before it keep their hash, and go on."""
    before = config_hash(Config())
    assert config_hash(dataclasses.replace(Config(), rollout=RolloutConfig(slots=4))) != before
    assert config_hash(dataclasses.replace(Config(), method="grpo")) != before
    tree = to_dict(Config())
    for key in INCIDENTAL:
        section, _, name = key.rpartition(".")
        (tree[section] if section else tree).pop(name)
    del tree["rollout"]["slots"], tree["es"]["anchor"], tree["method"], tree["grpo"], tree["randopt"]
    assert before == hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
