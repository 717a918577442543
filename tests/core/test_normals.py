import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.noise import noise_key
from esopt_jax.core.normals import box_muller, normal_rows, threefry2x32, word_pairs

WORDS = jnp.array([1, 2], jnp.uint32)


@pytest.fixture(scope="module")
def draw():
    """2^21 pairs: words and normals."""
    low = jnp.arange(1 << 21, dtype=jnp.uint32)
    words = jax.jit(threefry2x32)(WORDS, low)
    return np.asarray(words), np.asarray(jax.jit(box_muller)(*words))


@pytest.mark.parametrize("columns", [1, 128, 300, 513])
def test_words_are_those_of_jax(columns):
    key = noise_key(3, 1, 4)
    tiles, lanes = -(-columns // 256), min(128, columns)
    first, second = word_pairs(jax.random.key_data(key), 0, 7, columns)
    expected = jax.random.bits(key, (7, tiles * 128)).reshape(7, tiles, 128)[..., :lanes]
    assert jax.config.jax_threefry_partitionable
    assert (first ^ second == expected).all()


def test_normals_are_those_of_float64(draw):
    (first, second), normals = draw
    radius = np.sqrt(-2 * np.log(((first >> 8).astype(np.float64) + 1) / 2**24))
    quadrant, fraction = (second >> 30).astype(np.float64), ((second << 2).view(np.int32) >> 8) / 2**24
    turn = np.pi / 2 * (quadrant + fraction)
    expected = np.stack([radius * np.cos(turn), radius * np.sin(turn)])
    assert np.abs(normals - expected).max() < 1e-6


def test_normals_at_the_edges_of_the_words():
    edges = jnp.array([0, 1, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, 0x3FFFFFFF, 0x40000000, 0xC0000000], jnp.uint32)
    z0, z1 = box_muller(*(x.ravel() for x in jnp.meshgrid(edges, edges)))
    assert np.isfinite(z0).all() and np.isfinite(z1).all()
    assert np.hypot(z0, z1).max() <= np.sqrt(-2 * np.log(2.0**-24)) + 1e-5
    assert float(jnp.abs(box_muller(jnp.uint32(2**32 - 1), jnp.uint32(5))[0])) == 0  # u = 1: radius 0


def test_moments_and_tails(draw):
    _, normals = draw
    z = normals.astype(np.float64).ravel()
    n = z.size
    assert abs(z.mean()) < 4 / np.sqrt(n)
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / n)
    assert abs((z**3).mean()) < 4 * np.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 4 * np.sqrt(96 / n)
    for bound, share in ((1, 0.31731), (2, 0.045500), (3, 0.0026998), (4, 6.334e-5)):
        assert abs((abs(z) > bound).mean() - share) < 4 * np.sqrt(share / n)


def test_the_two_normals_of_a_pair_and_neighbours_are_independent(draw):
    _, (z0, z1) = draw
    bound = 4 / np.sqrt(z0.size)
    for a, b in ((z0, z1), (z0[1:], z0[:-1]), (z1[1:], z0[:-1]), (z0[128:], z1[:-128])):
        assert abs(np.mean(a.astype(np.float64) * b)) < bound
        assert abs(np.mean((a.astype(np.float64) ** 2 - 1) * (b.astype(np.float64) ** 2 - 1))) < 4 * bound


@pytest.mark.parametrize("columns", [5, 129, 700])
def test_a_window_of_rows_is_cut_from_the_whole(columns):
    whole = normal_rows(WORDS, 0, 9, columns)
    assert (normal_rows(WORDS, 4, 3, columns) == whole[4:7]).all()
    assert (jax.jit(lambda row: normal_rows(WORDS, row, 3, columns))(4) == whole[4:7]).all()


@pytest.mark.parametrize(
    ("columns", "first", "width"), [(700, 0, 300), (700, 333, 300), (700, 400, 300), (90, 70, 20), (600, 255, 2)]
)
def test_a_window_of_columns_is_cut_from_the_whole(columns, first, width):
    whole = normal_rows(WORDS, 0, 4, columns)
    window = jax.jit(lambda column: normal_rows(WORDS, 0, 4, columns, first_column=column, width=width))(first)
    assert (window == whole[:, first : first + width]).all()


def test_a_wider_form_does_not_share_columns_with_a_narrow_one_by_accident():
    narrow, wide = normal_rows(WORDS, 0, 4, 256), normal_rows(WORDS, 0, 4, 512)
    assert (narrow[0] == wide[0, :256]).all()  # row 0 starts with the same tile
    assert (narrow[1] == wide[0, 256:]).all()  # and tiles are counted row by row
    assert not (narrow[1] == wide[1, :256]).any()


def test_a_dead_draw_is_zero():
    assert (normal_rows(WORDS, 0, 3, 300, live=jnp.array(False)) == 0).all()
    assert (normal_rows(WORDS, 0, 3, 300, live=jnp.array(True)) == normal_rows(WORDS, 0, 3, 300)).all()
