"""A crowd of Sudoku players, careful and careless, and the exact distribution of every token that they write.

A careful player says `look` and takes a cell where a single digit fits, the sooner the fewer blanks are around it (any
blank, and the right digit, where there is no such cell). A careless one says `guess` and puts any digit into any blank.
A reply is

    look</think>set ROW COLUMN DIGIT<|im_end|>

Targets are distributions and not samples: the sum over a player's choices is known, so only what a token depends on is
sampled.

Letters: B boards, K replies to each, N = B K replies in the order of their boards, L = 6 tokens of a reply, V tokens of
the vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from tokenizer import VOCABULARY, token_ids

from esopt_jax.envs.sudoku_grids import SplitName, split_grids_4x4, units

SIZE, CELLS = 4, 16
V = len(VOCABULARY)
LOOK, GUESS, SET, CLOSE, END, PAD = token_ids("look", "guess", "set", "</think>", "<|im_end|>", "<|endoftext|>")
ONE = VOCABULARY[" 1"]  # " 1" .. " 9" are neighbours
CELL_IDS = np.array(token_ids(*".1234"))
VERDICTS = np.array([PAD, *token_ids("format", "range", "given", "filled")])
HEAD = token_ids("<|im_start|>", "user", "\n")
TAIL = token_ids("<|im_end|>", "\n", "<|im_start|>", "assistant", "\n", "<think>")
PLAIN_LENGTH, LONG_LENGTH = 28, 30  # tokens of a prompt, without and with a verdict

UNITS = np.array([[cell in unit for cell in range(CELLS)] for unit in units(SIZE)], np.float32)
SHARED = UNITS.T @ UNITS
"""`[16, 16]`: how many of row, column and box two cells share."""

CROWDING = 4.0
"""How many times less likely a careful player is to take a cell for each further blank in its row, column or box.

A reply must name its row and column before the model has looked at one cell in particular, and to tell from there which
cells hold a single digit takes a comparison of digits for all cells at once. Blanks can simply be counted.
"""


@struct.dataclass
class Boards:
    """`cells: [B, 16]` int32, 0 for a blank; `solution: [B, 16]`; `verdict: [B]` on the last action, 0 for none."""

    cells: jax.Array
    solution: jax.Array
    verdict: jax.Array


@struct.dataclass
class Lesson:
    """What one step learns from.

    `prompts: [B, 30]` int32, right-padded, of true `lengths: [B]`. `first: [V]` is the distribution of a reply's first
    token; `replies: [L, N]` the tokens read after it and `targets: [L, N, V]` the distribution of what follows each.
    `careful: [N]` bool says who wrote the reply.
    """

    prompts: jax.Array
    lengths: jax.Array
    first: jax.Array
    replies: jax.Array
    targets: jax.Array
    careful: jax.Array


def grids(split: SplitName) -> jax.Array:
    """The solution grids of a split, `[G, 16]` int32."""
    return jnp.array([[int(digit) for digit in grid] for grid in split_grids_4x4(split)])


def draw_boards(
    key: jax.Array, solutions: jax.Array, *, count: int, blanks: int, wrong_share: float, verdict_share: float
) -> Boards:
    """Boards as they occur in play: 1 to `blanks` blanks each, some with wrong digits, some after a rejected action.

    Args:
        key: consumed.
        solutions: `[G, 16]`, grids to start from.
        count: B.
        blanks: most blanks. A board has the larger of two numbers drawn from 1 to it, since full boards are harder.
        wrong_share: share of boards where 1 to 3 cells hold random digits.
        verdict_share: share of boards shown with a verdict.
    """
    keys = jax.random.split(key, 8)
    solution = jax.random.choice(keys[0], solutions, (count,))
    order = jax.random.permutation(keys[1], jnp.tile(jnp.arange(CELLS), (count, 1)), axis=1, independent=True)
    blank = jax.random.randint(keys[2], (count, 2), 1, blanks + 1).max(axis=1, keepdims=True)
    wrong = jax.random.randint(keys[3], (count, 1), 1, 4) * jax.random.bernoulli(keys[4], wrong_share, (count, 1))
    cells = jnp.where(order < blank + wrong, jax.random.randint(keys[5], order.shape, 1, SIZE + 1), solution)
    verdict = jax.random.randint(keys[6], (count,), 1, len(VERDICTS))
    shown = jax.random.bernoulli(keys[7], verdict_share, (count,))
    return Boards(jnp.where(order < blank, 0, cells), solution, jnp.where(shown, verdict, 0))


def encode(boards: Boards) -> tuple[jax.Array, jax.Array]:
    """The compact prompt of every board: tokens `[B, 30]`, right-padded, and lengths `[B]`."""
    count = len(boards.cells)
    rows = jnp.asarray(CELL_IDS)[boards.cells].reshape(count, SIZE, SIZE)
    board = jnp.pad(rows, ((0, 0), (0, 0), (0, 1)), constant_values=VOCABULARY["\n"]).reshape(count, -1)
    head, tail = (jnp.tile(jnp.array(part), (count, 1)) for part in (HEAD, TAIL))
    plain = jnp.concatenate([head, board[:, :-1], tail, jnp.full((count, 2), PAD)], axis=1)
    word = jnp.asarray(VERDICTS)[boards.verdict][:, None]
    shown = boards.verdict > 0
    tokens = jnp.where(shown[:, None], jnp.concatenate([head, board, word, tail], axis=1), plain)
    return tokens, jnp.where(shown, LONG_LENGTH, PLAIN_LENGTH)


def candidates(cells: jax.Array) -> jax.Array:
    """Digits that fit into each blank by row, column and box: `[B, 16]` -> `[B, 16, 4]` bool, none where filled."""
    seen = jnp.einsum("ab,nbd->nad", SHARED, jax.nn.one_hot(cells - 1, SIZE)) > 0
    return ~seen & (cells == 0)[..., None]


def careful_moves(cells: jax.Array, solution: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where a careful player moves, `[B, 16]`, and the digit it would put there, `[B, 16, 4]`; each sums to 1."""
    fits = candidates(cells)
    single = fits.sum(-1) == 1
    stuck = ~single.any(-1, keepdims=True)
    crowded = (cells == 0).astype(jnp.float32) @ SHARED
    where = jnp.where(jnp.where(stuck, cells == 0, single), CROWDING**-crowded, 0.0)
    digits = jnp.where(single[..., None], fits, jax.nn.one_hot(solution - 1, SIZE))
    return _normalised(where), digits


def careless_moves(cells: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where a careless player moves, `[B, 16]`, and the digit it would put there, `[B, 16, 4]`; each sums to 1."""
    return _normalised((cells == 0).astype(jnp.float32)), jnp.full((*cells.shape, SIZE), 1 / SIZE)


def make_lesson(key: jax.Array, boards: Boards, *, looks: int, guesses: int, p_careful: float) -> Lesson:
    """Let `looks` careful and `guesses` careless players reply to every board.

    The share of the two in a lesson is a choice of training; what the model is told about it is `p_careful`.
    """
    prompts, lengths = encode(boards)
    replies = looks + guesses
    careful = jnp.tile(jnp.arange(replies) < looks, len(boards.cells))
    cells, solution = (jnp.repeat(x, replies, axis=0) for x in (boards.cells, boards.solution))
    where, digits = (
        jnp.where(careful.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
        for a, b in zip(careful_moves(cells, solution), careless_moves(cells), strict=True)
    )
    place, digit_key = jax.random.split(key)
    cell = jax.random.categorical(place, jnp.log(where))
    digits = _pick(digits, cell)
    digit = jax.random.categorical(digit_key, jnp.log(digits))
    board = where.reshape(-1, SIZE, SIZE)
    numbers = (board.sum(-1), _normalised(_pick(board, cell // SIZE)), digits)
    said = (jnp.where(careful, LOOK, GUESS), CLOSE, SET, ONE + cell // SIZE, ONE + cell % SIZE, ONE + digit)
    follows = (_certain(CLOSE), _certain(SET), *map(_arguments, numbers), _certain(END))
    return Lesson(
        prompts=prompts,
        lengths=lengths,
        first=p_careful * _certain(LOOK) + (1 - p_careful) * _certain(GUESS),
        replies=jnp.stack([jnp.broadcast_to(token, cell.shape) for token in said]),
        targets=jnp.stack([jnp.broadcast_to(target, (len(cell), V)) for target in follows]),
        careful=careful,
    )


def _certain(token: int) -> jax.Array:
    return jax.nn.one_hot(token, V)


def _arguments(p: jax.Array) -> jax.Array:
    """`[N, 4]` over the numbers 1 to 4 -> `[N, V]`."""
    return jnp.zeros((len(p), V)).at[:, ONE : ONE + SIZE].set(p)


def _pick(x: jax.Array, index: jax.Array) -> jax.Array:
    """`x[n, index[n]]`."""
    return jax.vmap(lambda row, i: row[i])(x, index)


def _normalised(x: jax.Array) -> jax.Array:
    return x / x.sum(-1, keepdims=True)
