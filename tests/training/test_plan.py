"""What a plan computes without compiling anything: bytes, work, and advice that holds when it is followed."""

from __future__ import annotations

import re

import pytest

from esopt_jax.config import Config
from esopt_jax.config_reader import from_dict, load_config
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import find_architecture, open_model
from esopt_jax.training.plan import make_plan
from esopt_jax.training.plan_bytes import common_bytes, population_footprint, state_bytes
from esopt_jax.training.plan_sizing import sizing_of

GIB = 2**30
PARAMETERS = {
    "qwen3.5-0.8b": 752_393_024,
    "qwen3.5-2b": 1_881_825_088,
    "qwen3.5-4b": 4_205_751_296,
    "qwen3.5-9b": 8_953_803_264,
    "qwen3.5-27b": 26_895_998_464,
}


def config_of(name: str, mesh: tuple[int, int] = (1, 1), **sections: dict) -> Config:
    tree = {
        "model": {"path": name, "dtype": "bfloat16"},
        "es": {"population_size": 8, "members_per_pass": 2, "master": "split"},
        "rollout": {"cases": 4, "max_prompt_tokens": 512},
        "eval": {"rows": 8},
        "train": {"mesh": list(mesh)},
    }
    return from_dict({section: tree.get(section, {}) | sections.get(section, {}) for section in [*tree, *sections]})


def plan_of(config: Config, gib: float = 72) -> dict:
    return make_plan(config, device_memory=gib * GIB, compiled=False)


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("name", PARAMETERS)
def test_every_size_on_every_mesh_holds_its_share_of_the_weights(name, devices):
    plan = plan_of(config_of(name, (1, devices)))
    held, size = plan["per_device_bytes"], PARAMETERS[name]
    assert plan["parameters"] == size and plan["checkpoint_bytes"] == 4 * size
    least = 2 * size / devices
    # Two key-value heads are whole on each of four devices, with all that reads them; else only norms are.
    uneven = devices == 4 and name in ("qwen3.5-0.8b", "qwen3.5-2b")
    assert least <= held["weights"] <= least * (1.25 if uneven else 1.001)
    assert held["weights"] <= held["master"] <= held["weights"] * 1.001  # the lower halves, and vectors in float32
    assert held["member"] == 2 * held["weights"]
    assert held["total"] == sum(held[part] for part in ("weights", "master", "member", "caches", "scratch"))


def test_the_largest_preset_fits_four_devices_with_room():
    plan = plan_of(load_config("h100x4-qwen3.5-27b"))
    held = plan["per_device_bytes"]
    assert plan["mesh"] == [1, 4] and round(held["weights"] / GIB, 1) == 12.5
    assert max(held["total"], plan["evaluation_bytes"]["total"]) <= 72 * GIB
    assert plan["fits"] and plan["reason"] is None and plan["advice"] == []
    assert (plan["episodes_per_generation"], plan["context_tokens"], plan["rows_per_device"]["population"]) == (
        64,
        1344,
        16,
    )


def test_the_other_preset_has_a_model_on_each_device():
    plan = plan_of(load_config("h100x4-qwen3.5-4b"))
    assert plan["mesh"] == [4, 1] and plan["fits"] and plan["passes"] == 4
    assert round(plan["per_device_bytes"]["weights"] / GIB, 1) == 7.8


@pytest.mark.parametrize(
    ("dtype", "master", "bytes_each"),
    [
        ("bfloat16", "split", (2, 2)),
        ("bfloat16", "bfloat16", (2, 0)),
        ("bfloat16", "float32", (2, 4)),
        ("float32", "float32", (4, 0)),
        ("float32", "bfloat16", (4, 2)),
    ],
)
def test_master_and_compute_types(dtype, master, bytes_each):
    """What the forward pass can read as it is counts once; a copy in another type counts beside the master."""
    config = config_of("qwen3.5-0.8b", model={"dtype": dtype}, es={"master": master})
    held = plan_of(config)["per_device_bytes"]
    size = PARAMETERS["qwen3.5-0.8b"]
    for part, each in zip(("weights", "master"), bytes_each, strict=True):
        assert held[part] / size == pytest.approx(each, abs=2e-3)


def test_caches_of_the_largest_model():
    """65,536 bytes a token of context and 144 MiB a sequence, of which each of four devices has a quarter."""

    def caches(tokens: int) -> int:
        config = config_of("qwen3.5-27b", (1, 4), rollout={"max_prompt_tokens": tokens})
        return state_bytes(sizing_of(find_architecture("qwen3.5-27b"), config), (1, 1))

    per_token = (caches(1512) - caches(512)) / 1000
    assert per_token == 65_536 / 4
    rest = caches(512) - per_token * 576
    states = 144 * 2**20 / 4
    assert states < rest < states + 2880 * 1024 / 4 + 2048


def test_groups_are_alike_and_share_the_members():
    one, two = (plan_of(config_of("qwen3.5-4b", mesh)) for mesh in ((1, 2), (2, 2)))
    halves = {"member", "caches"}
    for part in ("weights", "master", *halves):
        share = 2 if part in halves else 1
        assert one["per_device_bytes"][part] == share * two["per_device_bytes"][part]
    assert (one["passes"], two["passes"]) == (4, 4)


def test_low_rank_members_cost_their_factors():
    config = config_of("builtin:sudoku-4x4", es={"plan": "low_rank", "rank": 3})
    arch = find_architecture("builtin:sudoku-4x4")
    sizing = sizing_of(arch, config)
    vectors = sum(s.size * (4 if s.keep_float32 else 2) for s in sizing.specs if not s.is_matrix)
    factors = sum(3 * sum(s.noise_form) * 2 for s in sizing.specs if s.is_matrix)
    assert population_footprint(sizing).member == 2 * (vectors + factors)
    assert common_bytes(sizing) == sum(2 * s.size for s in sizing.specs if s.is_matrix)


def test_adapters_are_the_only_members_of_their_scope():
    full, lora = (
        plan_of(config_of("qwen3.5-0.8b", es={"scope": scope}))["per_device_bytes"] for scope in ("full", "lora:8")
    )
    assert 0 < lora["member"] < full["member"] / 50
    assert lora["weights"] == pytest.approx(full["weights"] + lora["member"] / 2)


def test_a_generation_in_episodes_tokens_and_seconds():
    config = config_of("qwen3.5-0.8b", rollout={"episodes_per_case": 2, "max_turns": 5, "max_new_tokens": 16})
    plan = make_plan(config, device_memory=GIB, tokens_per_s=100, compiled=False)
    assert plan["episodes_per_generation"] == 64
    assert plan["tokens_per_generation"] == {"read_at_most": 64 * 5 * 512, "written_at_most": 64 * 5 * 16}
    assert plan["seconds_per_generation"] == 51.2
    assert plan_of(config)["seconds_per_generation"] is None


# --- advice -----------------------------------------------------------------------------------------------------------


def followed(config: Config, line: str) -> Config:
    from esopt_jax.config import to_dict
    from esopt_jax.config_reader import parse_value

    tree = to_dict(config)
    for key, value in re.findall(r"--set ([\w.]+)=(\S+)", line):
        section, name = key.split(".")
        tree[section][name] = parse_value(value)
    return from_dict(tree)


TOO_LARGE = {
    "a model split too little": (config_of("qwen3.5-27b", (2, 2)), 72),
    "a model not split": (config_of("qwen3.5-27b", (4, 1)), 72),
    "too many members": (config_of("qwen3.5-4b", (4, 1), es={"members_per_pass": 0}, rollout={"cases": 32}), 30),
    "too many rows of an evaluation": (config_of("qwen3.5-0.8b", eval={"rows": 0, "episodes": 512}), 20),
    "a master of the wrong type": (config_of("qwen3.5-4b", es={"members_per_pass": 1, "master": "float32"}), 32),
    "float32 everywhere": (config_of("qwen3.5-2b", model={"dtype": "float32"}, es={"master": "float32"}), 16),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_advice_helps_when_it_is_followed(case):
    config, gib = TOO_LARGE[case]
    plan = plan_of(config, gib)
    assert not plan["fits"] and f"{gib:.1f} GiB may be used" in plan["reason"] and "\n" not in plan["reason"]
    assert plan["advice"]
    for line in plan["advice"]:
        again = plan_of(followed(config, line), gib)
        assert again["fits"] and again["advice"] == [], line
        total = max(again[part]["total"] for part in ("per_device_bytes", "evaluation_bytes"))
        assert f"({total / GIB:.1f} GiB" in line


def test_a_split_master_of_the_largest_model_needs_all_four_devices():
    config, gib = TOO_LARGE["a model split too little"]
    plan = plan_of(config, gib)
    held = plan["per_device_bytes"]
    assert round(held["weights"] / GIB) == round(held["master"] / GIB) == round(held["member"] / GIB) == 25
    assert plan["reason"].startswith("a pass needs ")
    assert plan["advice"][0].startswith("--set train.mesh=[1,4] ")
    assert any(line.startswith("--set es.master=bfloat16 ") for line in plan["advice"])


def test_fewer_members_at_once_come_first():
    config, gib = TOO_LARGE["too many members"]
    assert re.match(r"--set es\.members_per_pass=\d+ \(", plan_of(config, gib)["advice"][0])


def test_a_device_far_too_small_is_said_to_be():
    plan = plan_of(config_of("qwen3.5-27b", (1, 4)), 1)
    assert not plan["fits"] and len(plan["advice"]) == 1
    assert "use a smaller model or devices with more memory" in plan["advice"][0]


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["qwen3.5-27b", "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-27B@main"])
def test_a_published_size_needs_no_file(path):
    assert find_architecture(path).num_hidden_layers == 64


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3.5-27b").mkdir()
    with pytest.raises(EsoptError, match=r"has no config\.json"):
        find_architecture("qwen3.5-27b")


def test_training_still_needs_the_weights():
    with pytest.raises(EsoptError, match="cannot be downloaded from the Hugging Face hub"):
        open_model(load_config("h100x4-qwen3.5-27b").model.path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("qwen3.5-28b", "model folder 'qwen3.5-28b' does not exist"),
        ("some/model", "the config.json of model 'some/model' is not in the local cache"),
    ],
)
def test_an_unknown_model_is_refused(path, message):
    with pytest.raises(EsoptError, match=re.escape(message)):
        plan_of(config_of(path))


def test_a_mesh_that_does_not_divide_the_model_is_refused():
    with pytest.raises(EsoptError, match="does not divide over 3 devices"):
        plan_of(config_of("qwen3.5-27b", (1, 3)))
