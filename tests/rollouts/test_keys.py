"""Keys follow from what a row plays; the order of fold-ins is a contract."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.rollouts.keys import Slots, environment_seeds, row_keys, token_bits
from esopt_jax.types import Purpose


def slots(m: int = 3, c: int = 4) -> Slots:
    grid = np.arange(m * c).reshape(m, c).astype(np.int32)
    return Slots(member=grid // c, case=grid % c + 100, episode=grid % 2, turn=grid * 0 + 5)


@pytest.mark.parametrize("common", [True, False])
def test_row_keys_are_the_documented_chain(common):
    s = slots()
    keys = row_keys(2**32 - 1, 7, s, common_random_numbers=common)
    for m in range(3):
        for c in range(4):
            key = jax.random.key(jnp.uint32(2**32 - 1), impl="threefry2x32")
            chain = [Purpose.SAMPLING, 7, s.case[m, c], s.episode[m, c], s.turn[m, c]] + ([] if common else [m])
            for part in chain:
                key = jax.random.fold_in(key, part)
            assert keys[m, c] == key


def test_common_random_numbers_are_shared_by_members_and_only_by_them():
    s = slots()
    common = jax.random.key_data(row_keys(0, 0, s, common_random_numbers=True))
    assert (common == common[:1]).all()
    assert len(np.unique(np.asarray(common[0]), axis=0)) == 4
    apart = jax.random.key_data(row_keys(0, 0, s, common_random_numbers=False))
    assert len(np.unique(np.asarray(apart).reshape(-1, 2), axis=0)) == 12


def test_token_bits_are_words_of_jax_random_bits():
    keys = jax.random.split(jax.random.key(3), 5)
    position = jnp.array([0, 1, 2, 3, 900], jnp.int32)
    ids = jnp.array([[0, 7, 8], [3, 2, 1], [9, 9, 9], [5, 0, 6], [1, 2, 3]], jnp.int32)
    bits = token_bits(keys, position, ids)
    for row in range(5):
        whole = jax.random.bits(jax.random.fold_in(keys[row], position[row]), (10,))
        np.testing.assert_array_equal(bits[row], whole[ids[row]])


def test_environment_seeds_differ_by_case_repeat_generation_and_purpose():
    case, episode, member = np.array([[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    common = environment_seeds(5, 2, case, episode, member, common_random_numbers=True)
    assert common[0] == common[3]
    assert len(set(common[:3])) == 3
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in common)
    apart = environment_seeds(5, 2, case, episode, member, common_random_numbers=False)
    assert len(set(apart)) == 4
    assert environment_seeds(5, 3, case, episode, member, common_random_numbers=True)[0] != common[0]
    assert environment_seeds(6, 2, case, episode, member, common_random_numbers=True)[0] != common[0]
