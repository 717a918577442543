"""From key words to standard normals: counter-based threefry2x32 and a polynomial Box-Muller.

Noise specification 1. A leaf has a noise form `[rows, columns]`. Its columns fall into tiles of 256; a tile holds 128
pairs, and pair `lane` of tile `t` gives columns `256 t + lane` and `256 t + 128 + lane`. Pair number
`p = (row * tiles + t) * 128 + lane` is the counter of one threefry2x32 block, whose two words become two normals.
Columns beyond the form are discarded. A shard that starts at a tile needs no word of its neighbours.

Every addition below has at most one product among its operands, and every such product has one use. A compiler that
contracts `a * b + c` then has one way to do so, which is why a draw has the same bits in every program around it. (Run
operation by operation nothing is contracted and 5 % of the last bits differ, so `box_muller` is always compiled.)

Source: Salmon et al. (2011), Parallel Random Numbers: As Easy as 1, 2, 3; Box and Muller (1958). The coefficients are
those of the Cephes single-precision `logf`, `sinf` and `cosf`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TILE = 256
LANES = 128

_f32 = np.float32
_u32 = np.uint32
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_SQRT_HALF_BITS = np.int32(0x3F3504F3)
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1)
_LOG_TAIL = (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1, -0.5)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1, 1.0)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5, 1.0)


@jax.jit
def threefry2x32(words: jax.Array | tuple[jax.Array, jax.Array], low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two output words of the counter block `(0, low)`, elementwise.

    Written out, since the primitive behind `jax.random.bits` does not return both words of a block in one fusion.

    Args:
        words: the two uint32 words of the key; each may be an array that broadcasts with `low`.
        low: `[...]` uint32, the low counter word; the high one is 0.

    Returns:
        two `[...]` uint32 arrays. Their xor is what partitionable `jax.random.bits` gives at linear index `low`.

    Example:
        >>> first, second = threefry2x32(jnp.zeros(2, jnp.uint32), jnp.uint32(0))
        >>> hex(int(first)), hex(int(second))
        ('0x6b200159', '0x99ba4efe')
    """
    schedule = (words[0], words[1], words[0] ^ words[1] ^ _u32(0x1BD11BDA))
    a, b = schedule[0] + jnp.zeros_like(low), schedule[1] + low
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            a = a + b
            b = ((b << _u32(rotation)) | (b >> _u32(32 - rotation))) ^ a
        a = a + schedule[(group + 1) % 3]
        b = b + (schedule[(group + 2) % 3] + _u32(group + 1))
    return a, b


@jax.jit
def box_muller(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two independent standard normals from two random words, elementwise.

    `z0 = r cos t`, `z1 = r sin t` with `r = sqrt(-2 log u)`, `u = (first // 256 + 1) / 2^24` and
    `t = pi/2 (q + f)`, where `q` is the top two bits of `second` and `f` the next 24, read as a signed fraction.
    Only `+`, `*`, `sqrt` and bit operations; within 1e-6 of the float64 value.

    Args:
        first: `[...]` uint32, the radius.
        second: `[...]` uint32, the angle.

    Returns:
        `z0` and `z1`, `[...]` float32, |z| at most 5.77.

    Example:
        >>> z0, z1 = box_muller(jnp.uint32(0x9B459E00), jnp.uint32(0))
        >>> round(float(z0), 4), float(z1)
        (1.0, 0.0)
    """
    u = ((first >> _u32(8)) + _u32(1)).astype(jnp.int32).astype(jnp.float32) * _f32(2.0**-24)
    radius = jnp.sqrt(_f32(-2) * _log(u))
    quadrant = second >> _u32(30)
    fraction = (lax.bitcast_convert_type(second << _u32(2), jnp.int32) >> 8).astype(jnp.float32)
    angle = fraction * _f32(math.pi / 2 * 2.0**-24)
    square = angle * angle
    sine, cosine = angle * _horner(_SIN, square), _horner(_COS, square)
    swap = (quadrant & _u32(1)) == 1
    z0 = _flip(jnp.where(swap, sine, cosine), ((quadrant + _u32(1)) >> _u32(1)) & _u32(1))
    z1 = _flip(jnp.where(swap, cosine, sine), quadrant >> _u32(1))
    return radius * z0, radius * z1


def _log(x: jax.Array) -> jax.Array:
    """Natural logarithm for `x` in (0, 1]: exponent and a polynomial on [sqrt(1/2), sqrt(2))."""
    bits = lax.bitcast_convert_type(x, jnp.int32)
    exponent = (bits - _SQRT_HALF_BITS) >> 23
    m = lax.bitcast_convert_type(bits - (exponent << 23), jnp.float32) - _f32(1)
    return exponent.astype(jnp.float32) * _f32(math.log(2)) + (_horner(_LOG + _LOG_TAIL, m) * (m * m) + m)


def _horner(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    total = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + _f32(c)
    return total


def _flip(x: jax.Array, sign: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint32) ^ (sign << _u32(31)), jnp.float32)


# --- windows of a noise form ------------------------------------------------------------------------------------------


def tile_count(columns: int) -> int:
    """Tiles of 256 columns that cover `columns`.

    Example:
        >>> tile_count(256), tile_count(257)
        (1, 2)
    """
    return -(-columns // TILE)


def lane_count(columns: int) -> int:
    """Pairs of a tile that are worth drawing: a form of fewer than 128 columns never reads the other lanes.

    Example:
        >>> lane_count(48), lane_count(5120)
        (48, 128)
    """
    return min(LANES, columns)


@partial(jax.jit, static_argnames=("rows", "columns", "tiles"))
def word_pairs(
    words: jax.Array,
    first_row: jax.Array | int,
    rows: int,
    columns: int,
    *,
    first_tile: jax.Array | int = 0,
    tiles: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Both words of every pair in a window of a noise form.

    Args:
        words: `[2]` uint32, the key.
        first_row: first row of the window; may be traced.
        rows: rows of the window.
        columns: columns of the whole form.
        first_tile: first tile of the window; may be traced.
        tiles: tiles of the window; 0 means all of the form's.

    Returns:
        two `[rows, tiles, lanes]` uint32 arrays.

    Example:
        >>> first, second = word_pairs(jnp.array([1, 2], jnp.uint32), 0, 3, 300)
        >>> first.shape, first.dtype
        ((3, 2, 128), dtype('uint32'))
    """
    per_row = tile_count(columns)
    shape = (rows, tiles or per_row, lane_count(columns))
    row, tile, lane = (lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in range(3))
    row = row + jnp.asarray(first_row, jnp.uint32)
    tile = tile + jnp.asarray(first_tile, jnp.uint32)
    pairs: tuple[jax.Array, jax.Array] = threefry2x32(words, (row * _u32(per_row) + tile) * _u32(LANES) + lane)
    return pairs


def join_pairs(first: jax.Array, second: jax.Array, columns: int) -> jax.Array:
    """Pairs `[rows, tiles, lanes]` laid out as columns `[rows, columns]`; the surplus is dropped.

    Example:
        >>> zeros, ones = jnp.zeros((1, 1, 128)), jnp.ones((1, 1, 128))
        >>> join_pairs(zeros, ones, 130)[0, 126:].tolist()
        [0.0, 0.0, 1.0, 1.0]
    """
    rows, tiles, lanes = first.shape
    if lanes < LANES or columns <= LANES:
        return first.reshape(rows, lanes)[:, :columns]
    return jnp.concatenate([first, second], axis=-1).reshape(rows, tiles * TILE)[:, :columns]


@partial(jax.jit, static_argnames=("rows", "columns", "width"))
def normal_rows(
    words: jax.Array,
    first_row: jax.Array | int,
    rows: int,
    columns: int,
    *,
    first_column: jax.Array | int = 0,
    width: int | None = None,
    live: jax.Array | None = None,
) -> jax.Array:
    """A window of the noise over a form with `columns` columns: all of them, or `width` from `first_column` on.

    Args:
        words: `[2]` uint32, the key of the leaf.
        first_row: first row; may be traced.
        rows: number of rows.
        columns: columns of the form.
        first_column: first column; may be traced and need not be a multiple of 256.
        width: number of columns; None means all.
        live: `[]` bool, traced; where False nothing is drawn and the result is 0. The branch also makes XLA write the
            pairs out once, as one complex array; fused with what follows, each would be computed for both its columns.

    Returns:
        `[rows, width]` float32 standard normals.

    Example:
        >>> words = jnp.array([1, 2], jnp.uint32)
        >>> whole, window = normal_rows(words, 0, 4, 300), normal_rows(words, 2, 2, 300, first_column=290, width=10)
        >>> whole.shape, bool((whole[2:, 290:] == window).all())
        ((4, 300), True)
    """
    tiles = cover(columns, first_column, width)

    def draw() -> jax.Array:
        pairs = word_pairs(words, first_row, rows, columns, first_tile=tiles.first, tiles=tiles.count)
        first, second = box_muller(*pairs)
        return pack_pairs(first, second, columns)

    if live is None:
        return tiles.cut(join_packed(draw(), tiles.columns))
    empty = jax.eval_shape(draw)
    drawn = lax.cond(live, draw, lambda: zeros_like_draw(empty.shape, empty.dtype, words))
    return tiles.cut(join_packed(drawn, tiles.columns))


@dataclass(frozen=True)
class Cover:
    """The tiles that cover a window of columns.

    Attributes:
        first: first tile; may be traced.
        count: number of tiles.
        columns: columns of the joined tiles.
        offset: first column of the window among them; None when the window is all of them.
        width: columns of the window.
    """

    first: jax.Array | int
    count: int
    columns: int
    offset: jax.Array | None
    width: int

    def cut(self, joined: jax.Array) -> jax.Array:
        """The window of joined tiles: `[rows, columns]` -> `[rows, width]`."""
        if self.offset is None:
            return joined
        return lax.dynamic_slice(joined, (0, self.offset), (joined.shape[0], self.width))


def cover(columns: int, first_column: jax.Array | int = 0, width: int | None = None) -> Cover:
    """The tiles that cover `width` columns from `first_column` on, of a form of `columns`; None means all.

    Example:
        >>> tiles = cover(700, 600, 50)
        >>> int(tiles.first), tiles.count, int(tiles.offset)
        (1, 2, 344)
    """
    if width is None or width == columns:
        return Cover(0, tile_count(columns), columns, None, columns)
    start = jnp.asarray(first_column, jnp.int32)
    tiles = min(tile_count(width) + 1, tile_count(columns))
    first_tile = jnp.minimum(start // TILE, tile_count(columns) - tiles)
    joined = tiles * TILE if columns > LANES else columns
    return Cover(first_tile, tiles, joined, start - first_tile * TILE, width)


def pack_pairs(first: jax.Array, second: jax.Array, columns: int) -> jax.Array:
    """Both normals of a pair as one complex64 element; float32 `first` alone where `second` is surplus.

    XLA:CPU shares no work between the two outputs of a tuple, but all of it between the parts of one element.
    """
    return first if columns <= LANES else lax.complex(first, second)


def join_packed(packed: jax.Array, columns: int) -> jax.Array:
    """`join_pairs` of what `pack_pairs` packed."""
    if columns <= LANES:
        return join_pairs(packed, packed, columns)
    return join_pairs(packed.real, packed.imag, columns)


def zeros_like_draw(shape: tuple[int, ...], dtype: jax.typing.DTypeLike, words: jax.Array) -> jax.Array:
    """Zeros to start a loop over draws with `words` (uint32).

    Under `shard_map` a loop's start must vary over the same mesh axes as its body; computed from `words`, it does.
    """
    return jnp.broadcast_to((words.ravel()[0] & _u32(0)).astype(dtype), shape)
