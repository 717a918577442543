"""Folders of several files: read under every spelling, written back file for file, refused in one line when damaged."""

from __future__ import annotations

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from model_shards import file_bytes, other_parts, spelled, write_shards
from safetensors.numpy import load_file, save_file

from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model, open_model
from esopt_jax.models.save import save_params


def refusal(call, *args):
    with pytest.raises(EsoptError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def half(tensors):
    """Weights in the types of a published checkpoint."""
    exact = ("A_log", "linear_attn.norm.weight")
    return {name: x if name.endswith(exact) else x.astype(ml_dtypes.bfloat16) for name, x in tensors.items()}


@pytest.fixture
def folder(write, config, half):
    """Three shards under the names of a multimodal file, with parts that are not the decoder's."""
    return write_shards(write(config), spelled(half, "multimodal") | other_parts(), 3)


def same(params, others):
    assert list(params) == list(others)
    return all(np.asarray(params[path]).tobytes() == np.asarray(others[path]).tobytes() for path in params)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("spelling", ["text", "multimodal", "mlx"])
def test_every_spelling_in_any_number_of_files_is_one_model(write, config, half, spelling, index):
    folder = write(config, half)
    alone = load_model(folder)
    for count in (1, 2, 5):
        write_shards(folder, spelled(half, spelling) | other_parts(), count, index=index)
        model = load_model(folder)
        assert same(model.params, alone.params) and model.dtypes == alone.dtypes


def test_an_untied_head_is_found_under_both_names(write, config, tensors):
    config["tie_word_embeddings"] = False
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    folder = write(config, tensors)
    for spelling in ("text", "multimodal", "mlx"):
        head = load_model(write_shards(folder, spelled(tensors, spelling), 2)).params["lm_head.weight"]
        np.testing.assert_array_equal(head, tensors["lm_head.weight"])


def test_leaves_keep_their_values_and_by_request_their_type(folder, half):
    model = open_model(folder)
    whole = load_model(folder).params
    for spec in model.specs:
        leaf = model.params[spec.path]
        assert leaf.dtype == half[spec.hf_name].dtype and leaf.shape == spec.shape
        assert whole[spec.path].dtype == np.float32
        np.testing.assert_array_equal(np.asarray(leaf, np.float32), whole[spec.path])


def test_every_16_bit_number_is_read_as_what_it_is(write, config, tensors):
    """All bit patterns of both types, subnormal numbers included."""
    config["vocab_size"] = 4096
    folder = write(config, tensors)
    for dtype in (ml_dtypes.bfloat16, np.float16):
        every = np.arange(2**16, dtype=np.uint16).view(dtype).reshape(4096, 16)
        every = np.where(np.isfinite(every.astype(np.float32)), every, dtype(0))
        save_file(tensors | {"model.embed_tokens.weight": every}, folder / "model.safetensors")
        model = load_model(folder)
        found = np.asarray(model.params["embed_tokens.weight"])
        expected = every.astype(np.float64).astype(np.float32)
        assert found.tobytes() == expected.tobytes()
        assert model.dtypes["model.embed_tokens.weight"] == dtype


def test_an_untouched_model_comes_back_file_for_file(folder, tmp_path):
    model = open_model(folder)
    save_params(tmp_path / "out", model.params, model)
    assert file_bytes(tmp_path / "out") == file_bytes(folder)


def test_tuned_weights_go_where_they_came_from_and_the_rest_stays(folder, tmp_path, half):
    model = load_model(folder)
    save_params(tmp_path / "out", {path: 1.5 * leaf + 0.01 for path, leaf in model.params.items()}, model)
    before, after = file_bytes(folder), file_bytes(tmp_path / "out")
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == {n for n in before if n.endswith("safetensors")}
    expected = spelled(half, "multimodal")
    for file in (tmp_path / "out").glob("*.safetensors"):
        old = load_file(folder / file.name)
        for name, tensor in load_file(file).items():
            if name in expected:
                step = (np.float32(1.5) * old[name].astype(np.float32) + np.float32(0.01)).astype(old[name].dtype)
                assert tensor.dtype == step.dtype and tensor.tobytes() == step.tobytes(), name
            else:
                assert tensor.tobytes() == old[name].tobytes(), name
    assert not list((tmp_path / "out").glob(".*"))


def test_a_head_that_repeats_no_tied_table_is_copied(write, config, tensors, tmp_path):
    """A tied model does not read it, whatever it is; and the file stays sound."""
    tensors["lm_head.weight"] = np.arange(12).reshape(4, 3)
    folder = write(config, tensors)
    model = load_model(folder)
    save_params(tmp_path / "out", {path: leaf + 1 for path, leaf in model.params.items()}, model)
    found = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(found["lm_head.weight"], tensors["lm_head.weight"])
    np.testing.assert_array_equal(found["model.norm.weight"], tensors["model.norm.weight"] + 1)


def test_a_base_that_became_another_model_is_refused(write, config, tensors, tmp_path):
    folder = write(config, tensors)
    model = load_model(folder)
    save_file(tensors | {"model.norm.weight": np.zeros(5, np.float32)}, folder / "model.safetensors")
    assert "model.norm.weight is [5] instead of [16]" in refusal(save_params, tmp_path / "out", model.params, model)


def test_a_folder_that_holds_something_is_refused(folder, tmp_path):
    model = load_model(folder)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("mine")
    assert "is not empty; give a new one" in refusal(save_params, tmp_path / "out", model.params, model)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["kept"]


def test_replacing_leaves_no_file_of_another_model(folder, tmp_path):
    model = load_model(folder)
    save_params(tmp_path / "out", model.params, model)
    single = tmp_path / "single"
    shutil.copytree(folder, single)
    write_shards(single, {n: x for f in folder.glob("*.safetensors") for n, x in load_file(f).items()}, 1, index=False)
    (single / "model-00001-of-00001.safetensors").rename(single / "model.safetensors")
    other = load_model(single)
    save_params(tmp_path / "out", other.params, other, replace=True)
    assert file_bytes(tmp_path / "out") == file_bytes(single)
    save_params(tmp_path / "out", model.params, model, replace=True)
    assert file_bytes(tmp_path / "out") == file_bytes(folder)


def test_what_fails_in_the_middle_leaves_no_weights(folder, tmp_path, monkeypatch):
    from esopt_jax.models import save

    model, told = load_model(folder), []

    def full(leaf, spec):
        told.append(spec.path)
        if len(told) == 12:
            raise OSError(28, "No space left on device")
        return tensor_rows(leaf, spec)

    tensor_rows = save.tensor_rows
    monkeypatch.setattr(save, "tensor_rows", full)
    assert "No space left on device" in refusal(save_params, tmp_path / "out", model.params, model)
    assert not list((tmp_path / "out").iterdir())


def test_a_disk_without_room_is_found_before_anything_is_written(folder, tmp_path, monkeypatch):
    model = load_model(folder)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert "the disk is full: it needs" in refusal(save_params, tmp_path / "out", model.params, model)


def test_a_base_that_is_gone(folder, tmp_path):
    model = load_model(folder)
    shutil.rmtree(folder)
    assert "has no model.safetensors" in refusal(save_params, tmp_path / "out", model.params, model)


# --- damage -----------------------------------------------------------------------------------------------------------

SECOND = "model-00002-of-00003.safetensors"


def test_a_shard_that_the_index_names_but_is_absent(folder):
    (folder / SECOND).unlink()
    assert f"lacks {SECOND}, of 3 weight files" in refusal(open_model, folder)


def test_a_missing_shard_shows_without_index_too(folder):
    (folder / "model.safetensors.index.json").unlink()
    assert len(open_model(folder).params) > 0
    (folder / SECOND).unlink()
    assert f"lacks {SECOND}, of 3 weight files" in refusal(open_model, folder)


def test_no_weights_at_all(folder):
    for path in folder.glob("model*"):
        path.unlink()
    assert "has no model.safetensors and no model.safetensors.index.json" in refusal(open_model, folder)
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "other formats than safetensors are not read" in refusal(open_model, folder)


def test_files_that_are_no_shards_of_one_model_are_ambiguous(folder):
    (folder / "model.safetensors.index.json").unlink()
    shutil.copy(folder / SECOND, folder / "other-00001-of-00002.safetensors")
    assert "it holds model-00001" in refusal(open_model, folder)


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_a_truncated_file(folder, cut):
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[:-cut])
    assert f"{SECOND} is not a readable safetensors file" in refusal(open_model, folder)


def damaged(change):
    def apply(tree):
        places = tree["weight_map"]
        return change(tree, places, next(iter(places)))

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damaged(lambda tree, places, name: {}), "holds no weight_map"),
        (damaged(lambda tree, places, name: {"weight_map": []}), "must say for every tensor"),
        (damaged(lambda tree, places, name: {"weight_map": {name: 3}}), "names 3; files must be"),
        (damaged(lambda tree, places, name: {"weight_map": places | {name: "../a.safetensors"}}), "names ../a.safe"),
        (damaged(lambda tree, places, name: {"weight_map": places | {name: "none.safetensors"}}), "lacks none.safe"),
        (damaged(lambda tree, places, name: {"weight_map": places | {"more": SECOND}}), "not hold where it says: more"),
        (
            damaged(
                lambda tree, places, name: {"weight_map": places | {name: ({*places.values()} - {places[name]}).pop()}}
            ),
            "do not hold where it says: m",
        ),
    ],
)
def test_a_damaged_index(folder, change, message):
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert message in refusal(open_model, folder)


def test_a_tensor_that_is_there_twice(folder):
    first, second = (load_file(folder / f"model-0000{i}-of-00003.safetensors") for i in (1, 2))
    name = next(iter(first))
    save_file(second | {name: first[name]}, folder / SECOND)
    assert f"hold twice: {name}" in refusal(open_model, folder)


def test_types_that_no_weight_has_are_named_with_all_else(folder):
    name = "model.language_model.norm.weight"
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        for wrong in set(tensors) & {name, "model.language_model.layers.0.mlp.up_proj.weight"}:
            tensors[wrong] = tensors[wrong].astype(np.int32 if wrong == name else ml_dtypes.float8_e4m3fn)
        tensors.pop("model.language_model.layers.1.self_attn.q_norm.weight", None)
        save_file(tensors, path)
    index = folder / "model.safetensors.index.json"
    index.unlink()
    text = refusal(open_model, folder)
    assert f"{name} is I32; it must be F32, BF16, F16" in text and "up_proj.weight is F8_E4M3" in text
    assert "missing model.layers.1.self_attn.q_norm.weight" in text


def test_hundreds_of_problems_are_cut(write, config, tensors):
    folder = write(config, {f"other.{i}": np.zeros(1, np.float32) for i in range(300)})
    text = refusal(open_model, folder)
    assert "missing model.embed_tokens.weight" in text and "unexpected other.0" in text
    assert "and 292 more" in text and len(text) < 2500


def test_two_spellings_of_one_tensor(write, config, tensors):
    tensors["model.language_model.norm.weight"] = tensors["model.norm.weight"]
    assert "unexpected model." in (text := refusal(open_model, write(config, tensors))) and "norm.weight" in text


@pytest.mark.parametrize("examples", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_any_damage_is_one_line(folder, tmp_path, examples):
    """Bytes changed, cut off or put in, anywhere in any file: the model loads, or one line says what is wrong."""
    rng = np.random.default_rng(0)
    original, broken = file_bytes(folder), 0
    for _ in range(examples):
        name = rng.choice(list(original))
        content = bytearray(original[name])
        # mostly in what is parsed: the first bytes of weights, all of the rest
        at = int(rng.integers(0, min(len(content), 3000)))
        match rng.integers(0, 4):
            case 0:
                content[at] = int(rng.integers(0, 256))
            case 1:
                del content[at:]
            case 2:
                del content[at : at + int(rng.integers(1, 40))]
            case 3:
                content[at:at] = rng.choice([b"0", b"9", b"\xff", b'"', b"{", b"null", b"-", b"1e999"])
        (folder / name).write_bytes(content)
        try:
            dict(open_model(folder).params)
        except EsoptError as fault:
            assert "\n" not in str(fault)
            broken += 1
        (folder / name).write_bytes(original[name])
    assert broken > examples // 3
