import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from esopt_jax.core.noise import (
    check_collisions,
    factor_words,
    leaf_hash,
    leaf_hashes,
    leaf_words,
    noise_key,
    noise_sign,
    sample_factors,
    sample_noise,
)
from esopt_jax.core.normals import word_pairs
from esopt_jax.errors import EsoptError
from esopt_jax.types import LeafSpec, Purpose

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "noise.json").read_text())


def spec_of(case):
    shape = tuple(case["shape"])
    return LeafSpec(case["path"], shape, (None,) * len(shape), case["inputs"], "normal", case["path"])


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['path']}{case['shape']}")
def test_golden(case):
    spec = spec_of(case)
    key = noise_key(case["seed"], case["generation"], case["member"])
    assert leaf_hash(case["path"]) == case["leaf_hash"]
    words = leaf_words(key[None], np.uint32(case["leaf_hash"]))[0]
    assert words.tolist() == case["key"]
    rows, columns = spec.noise_form
    lanes, tiles = min(128, columns), -(-columns // 256)
    first, second = (np.asarray(x) for x in word_pairs(words, 0, rows, columns))
    for position, pair in case["pairs"].items():
        row, rest = divmod(int(position), tiles * 128)
        tile, lane = divmod(rest, 128)
        if lane < lanes:  # the others are never drawn
            assert [int(first[row, tile, lane]), int(second[row, tile, lane])] == pair
    near(sample_noise(key, spec), case["normals"])
    if spec.is_matrix:
        left, right = sample_factors(key, spec, rank=3)
        near(left, case["left"])
        near(right, case["right"])


def near(x, golden):
    flat = np.asarray(x).ravel()
    assert flat[[int(i) for i in golden]] == pytest.approx(list(golden.values()), abs=1e-6)


def test_leaf_words_are_fold_in():
    keys = jnp.stack([noise_key(5, 1, m) for m in range(3)])
    hashes = np.array([0, 17, 2**32 - 1], np.uint32)
    for i, leaf in enumerate(hashes):
        for m, key in enumerate(keys):
            expected = jax.random.key_data(jax.random.fold_in(key, leaf))
            assert (leaf_words(keys, hashes)[i, m] == expected).all()
    words = jax.random.key_data(keys[0])
    for side in (0, 1):
        assert (factor_words(words)[side] == jax.random.key_data(jax.random.fold_in(keys[0], side))).all()


def test_no_flag_changes_the_noise(specs):
    spec = specs[1]
    expected = np.asarray(sample_noise(noise_key(1, 2, 3), spec))
    for flag in (False, True):
        with jax.threefry_partitionable(flag):
            jax.clear_caches()
            key = noise_key(1, 2, 3)
            assert (np.asarray(sample_noise(key, spec)) == expected).all()
    with jax.default_prng_impl("rbg"):
        assert (np.asarray(sample_noise(noise_key(1, 2, 3), spec)) == expected).all()


def test_only_typed_threefry_keys(specs):
    with pytest.raises(EsoptError, match="typed threefry2x32"):
        sample_noise(jnp.zeros(2, jnp.uint32), specs[0])
    with pytest.raises(EsoptError, match="typed threefry2x32"):
        sample_noise(jax.random.key(0, impl="rbg"), specs[0])


def test_everything_that_names_a_draw_changes_it(specs):
    base = {"seed": 1, "generation": 2, "member": 3}
    spec = specs[1]
    draws = [sample_noise(noise_key(**base), spec)]
    draws += [sample_noise(noise_key(**base | {name: 9}), spec) for name in base]
    draws += [
        sample_noise(noise_key(**base, purpose=Purpose.ROUNDING), spec),
        sample_noise(noise_key(**base), specs[2]),
    ]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert not (a == b).any()


def test_the_largest_seed_and_traced_arguments():
    largest = 2**32 - 1
    traced = jax.jit(noise_key)(jnp.uint32(largest), jnp.int32(4), jnp.int32(5))
    assert traced == noise_key(largest, 4, 5)
    assert noise_key(largest, 4, 5) != noise_key(0, 4, 5)


def test_antithetic_pairs_share_a_key_and_differ_in_sign():
    keys = [noise_key(0, 0, m, antithetic=True) for m in range(4)]
    assert keys[0] == keys[1] and keys[2] == keys[3] and keys[0] != keys[2]
    assert keys[2] == noise_key(0, 0, 1)
    assert noise_sign(jnp.arange(4), True).tolist() == [1, -1, 1, -1]
    assert noise_sign(jnp.arange(4), False).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("index", [1, 6])
def test_same_bits_alone_vmapped_mapped_and_scanned(specs, index):
    spec = specs[index]
    keys = jnp.stack([noise_key(0, 1, m) for m in range(3)])
    alone = np.stack([sample_noise(key, spec) for key in keys])
    assert (np.asarray(jax.vmap(lambda key: sample_noise(key, spec))(keys)) == alone).all()
    assert (np.asarray(jax.jit(lambda ks: lax.map(lambda key: sample_noise(key, spec), ks))(keys)) == alone).all()
    _, scanned = jax.jit(lambda ks: lax.scan(lambda c, key: (c, 0 * c + sample_noise(key, spec)), jnp.zeros(()), ks))(
        keys
    )
    assert (np.asarray(scanned) == alone).all()


def test_low_rank_noise_has_unit_variance():
    spec = LeafSpec("w", (400, 300), (None, None), 1, "normal", "w")
    left, right = sample_factors(noise_key(0, 0, 0), spec, rank=4)
    noise = np.asarray(left, np.float64).T @ np.asarray(right, np.float64) / 2
    assert np.mean(noise**2) == pytest.approx(1, abs=0.1)
    assert np.linalg.matrix_rank(noise) == 4


def test_vectors_have_no_factors(specs):
    with pytest.raises(EsoptError, match="no matrix form"):
        sample_factors(noise_key(0, 0, 0), specs[-2], rank=2)


def test_collisions_are_refused(specs, monkeypatch):
    check_collisions(specs)
    assert len(set(leaf_hashes(specs).tolist())) == len(specs)
    with pytest.raises(EsoptError, match=r"norm\.weight.*same noise"):
        check_collisions((*specs, specs[-2]))
    monkeypatch.setattr("esopt_jax.core.noise.leaf_hash", lambda path: len(path))
    with pytest.raises(EsoptError, match=r"layers\.0\.up\.weight.*layers\.1\.up\.weight"):
        check_collisions(specs)


def test_a_leaf_beyond_the_counter_is_refused():
    with pytest.raises(EsoptError, match="2\\^32 pairs"):
        check_collisions((LeafSpec("w", (2**25, 256), (None, None), 1, "normal", "w"),))
