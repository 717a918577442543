"""The device loop against the plainest program that does the same: score the whole text, pick one token, repeat."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.config import RolloutConfig
from esopt_jax.core.master import make_master
from esopt_jax.core.perturb import member_view, perturb_population, view_axes
from esopt_jax.models.registry import prefill, score
from esopt_jax.rollouts.decode import PAD, DecodeSpec, Segment, decode_segment, init_state, start_turn
from esopt_jax.rollouts.keys import Slots, row_keys
from esopt_jax.rollouts.sampler import Counts, make_sampling, sample

M, C, NEW = 2, 3, 6
EOS = (40, 41)
TEXTS = [  # three turns of ragged segments; an empty one sits out, and row (1, 2) starts afresh in turn 2
    [[5, 1, 4], [2, 9]],
    [[3], [8, 8, 8, 8, 9, 1, 2], [4, 4]],
]


@pytest.fixture(scope="module")
def world(tiny):
    spec = DecodeSpec(arch=tiny.arch, eos_ids=EOS, vocab_limit=100, max_new_tokens=NEW, capacity=64)
    master = make_master(tiny.params, specs=tiny.specs, format="float32")
    view = perturb_population(
        0, 0, jnp.arange(M), master, specs=tiny.specs, sigma=0.1, plan="low_rank", rank=2, dtype=jnp.float32
    )
    axes = view_axes(view)
    start = jax.jit(partial(start_turn, spec=spec, axes=axes), donate_argnums=1)
    write = jax.jit(partial(decode_segment, spec=spec, axes=axes), donate_argnums=1)
    return spec, view, start, write


def slots(turn: int) -> Slots:
    member, case = np.meshgrid(np.arange(M), np.arange(C), indexing="ij")
    return Slots(member=member, case=case, episode=member * 0, turn=np.full((M, C), turn))


def keys(turn: int) -> jax.Array:
    return row_keys(3, 1, slots(turn), common_random_numbers=True)


def segment(rows: dict[tuple[int, int], list[int]], fresh: set[tuple[int, int]], width: int = 12) -> Segment:
    tokens, lengths, mask = np.zeros((M, C, width), np.int32), np.zeros((M, C), np.int32), np.zeros((M, C), bool)
    for at, ids in rows.items():
        tokens[at][: len(ids)] = ids
        lengths[at] = len(ids)
        mask[at] = at in fresh
    return Segment(tokens=tokens, lengths=lengths, fresh=mask)


ROWS = [(m, c) for m in range(M) for c in range(C)]
PLAN: list[tuple[dict[tuple[int, int], list[int]], set[tuple[int, int]]]] = [
    (dict(zip(ROWS, ([5, 1, 4], [2], [9] * 12, [7, 7], [1, 2, 3, 4, 5], [11]), strict=True)), set(ROWS)),
    ({(0, 0): [3], (0, 2): [8, 8, 8], (1, 0): [1] * 9, (1, 2): [6, 5, 4]}, {(1, 2)}),
    ({(0, 0): [4, 4], (0, 1): [5], (1, 2): [2] * 7}, set()),
]


@pytest.fixture(scope="module")
def whole_text(tiny, world):
    """`whole_text(m, ids)`: logits of member m after `ids`, from scratch."""
    members = [member_view(world[1], m) for m in range(M)]
    scored = jax.jit(partial(score, arch=tiny.arch))

    def logits(m, ids):
        padded = np.array([ids + [0] * (64 - len(ids))], np.int32)
        return scored(members[m], padded, np.array([len(ids)], np.int32))[0, len(ids) - 1]

    return logits


@pytest.fixture(scope="module")
def reference(whole_text):
    """Replies and texts of every row and turn, from one-shot scoring of the whole conversation."""
    pick = jax.jit(sample, static_argnames="vocab_limit")

    def play(spec, sampling):
        texts = {at: [] for at in ROWS}
        prompts = {at: set() for at in ROWS}
        replies = []
        for turn, (rows, fresh) in enumerate(PLAN):
            said, key = {}, keys(turn)
            for m, c in rows:
                at = (m, c)
                if at in fresh:
                    texts[at], prompts[at] = [], set()
                prompts[at] |= set(texts[at])
                texts[at] = texts[at] + rows[at]
                prompts[at] |= set(rows[at])
                reply = []
                while len(reply) < NEW and not (reply and reply[-1] in EOS):
                    logits = whole_text(m, texts[at] + reply)
                    counts = Counts(
                        generated=np.bincount(reply, minlength=128).astype(np.int32),
                        prompt=np.isin(np.arange(128), list(prompts[at])),
                    )
                    at_position = np.int32(len(reply))
                    token = pick(key[at], logits, at_position, sampling, vocab_limit=spec.vocab_limit, counts=counts)
                    reply.append(int(token))
                texts[at] = texts[at] + reply
                said[at] = reply
            replies.append(said)
        return replies, texts, prompts

    return play


def play(world, sampling, *, steps: int = NEW):
    """The same with the device loop. A segment starts with the reply's last token, which has not been read yet."""
    spec, view, start, write = world
    state = init_state(spec, (M, C), penalties=sampling.flags.penalties)
    replies, last, earlier = [], {}, np.zeros((M, C), int)
    for turn, (rows, fresh) in enumerate(PLAN):
        read = {at: (ids if at in fresh else [last[at], *ids]) for at, ids in rows.items()}
        state = start(view, state, segment(read, fresh), keys(turn), sampling)
        for _ in range(0, NEW, steps):
            state = write(view, state, steps, sampling)
        tokens, written = np.asarray(state.tokens), np.asarray(state.written)
        assert np.asarray(state.done).all()
        assert (tokens[np.arange(NEW) >= written[..., None]] == PAD).all()
        said = {at: tokens[at][: written[at]].tolist() for at in rows}
        assert all(written[at] == earlier[at] for at in ROWS if at not in rows)
        earlier = written
        last |= {at: int(state.last[at]) for at in said}
        assert all(last[at] == reply[-1] for at, reply in said.items())
        replies.append(said)
    return replies, state


@pytest.fixture(scope="module")
def read_on(tiny, world):
    return jax.jit(jax.vmap(partial(prefill, arch=tiny.arch), in_axes=(view_axes(world[1]), 0, 0, 0)))


SAMPLINGS = {
    "plain": RolloutConfig(),
    "greedy": RolloutConfig(temperature=0),
    "penalties": RolloutConfig(presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=1.3),
    "all": RolloutConfig(
        temperature=0.7, top_k=9, top_p=0.9, min_p=0.01, presence_penalty=2.0, presence_penalty_scope="all"
    ),
}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_carried_episodes_equal_one_shot_scoring(world, reference, whole_text, read_on, name):
    sampling = make_sampling(SAMPLINGS[name])
    expected, texts, prompts = reference(world[0], sampling)
    replies, state = play(world, sampling)
    assert replies == expected
    lengths = {len(reply) for said in expected for reply in said.values()}
    assert NEW in lengths  # some replies are cut short
    if sampling.flags.penalties:  # what came before the last reply, since the row last forgot everything
        seen = {at: set(np.flatnonzero(state.counts.prompt[at])) for at in PLAN[-1][0]}
        assert seen == {at: prompts[at] for at in PLAN[-1][0]}
    # The state that is carried on gives the logits of the whole text: read the unread token and one more.
    ahead = np.array([[[texts[m, c][-1], 17] for c in range(C)] for m in range(M)], np.int32)
    logits, _ = read_on(world[1], state.cache, ahead, np.full((M, C), 2, np.int32))
    for m, c in ROWS:
        np.testing.assert_allclose(logits[m, c], whole_text(m, [*texts[m, c], 17]), atol=2e-4)


def test_a_reply_ends_at_any_end_id_and_idle_rows_are_untouched(world):
    spec, view, start, write = world
    state = init_state(spec, (M, C))
    sampling = make_sampling(RolloutConfig())
    rows, fresh = PLAN[0]
    state = write(view, start(view, state, segment(rows, fresh), keys(0), sampling), NEW, sampling)
    kept = [at for at in ROWS if at not in PLAN[1][0]]
    before = jax.tree.map(lambda x: np.asarray(x)[tuple(zip(*kept, strict=True))], state.cache)
    rows, fresh = PLAN[1]
    last = np.asarray(state.last)
    read = {at: (ids if at in fresh else [int(last[at]), *ids]) for at, ids in rows.items()}
    state = write(view, start(view, state, segment(read, fresh), keys(1), sampling), NEW, sampling)
    after = jax.tree.map(lambda x: np.asarray(x)[tuple(zip(*kept, strict=True))], state.cache)
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_ties_and_end_ids_beyond_the_first_stop_a_reply(tiny, world):
    """A gain of 0 makes all logits equal: id 0 wins, which here is the second end id."""
    _, view, _, _ = world
    flat = {**view, "norm.weight": jnp.full_like(view["norm.weight"], -1.0)}
    ends = DecodeSpec(arch=tiny.arch, eos_ids=(50, 0), vocab_limit=100, max_new_tokens=NEW, capacity=64)
    start = jax.jit(partial(start_turn, spec=ends, axes=view_axes(view)))
    state = start(
        flat,
        init_state(ends, (M, C)),
        segment(*PLAN[0]),
        keys(0),
        make_sampling(RolloutConfig(temperature=0)),
    )
    assert np.asarray(state.done).all()
    assert (np.asarray(state.written) == 1).all()
    assert (np.asarray(state.last) == 0).all()


def test_a_segment_can_be_decoded_in_pieces(world):
    sampling = make_sampling(RolloutConfig())
    whole, _ = play(world, sampling)
    pieces, _ = play(world, sampling, steps=2)
    assert whole == pieces


def test_one_loop_owns_all_rows(world):
    """One `while` in the program: a loop per member would select over every cache at every step."""
    spec, view, _, write = world
    text = write.lower(view, init_state(spec, (M, C)), NEW, make_sampling(RolloutConfig())).as_text()
    assert text.count("stablehlo.while") == 1


def test_rows_may_begin_while_others_are_in_the_middle_of_a_reply(world):
    """Whether rows begin together or one after another, each writes the reply that it writes alone."""
    spec, view, start, write = world
    sampling = make_sampling(RolloutConfig(presence_penalty=1.0))
    first, fresh = PLAN[0]
    together = write(view, start(view, begin(spec, sampling), segment(first, fresh), keys(0), sampling), NEW, sampling)
    state = begin(spec, sampling)
    for at, ids in first.items():
        state = start(view, state, segment({at: ids}, [at]), keys(0), sampling)
        state = write(view, state, 1, sampling)
    state = write(view, state, NEW, sampling)
    assert int(np.asarray(together.written).max()) > 2
    for name in ("tokens", "written", "last", "done"):
        assert (np.asarray(getattr(state, name)) == np.asarray(getattr(together, name))).all(), name


def begin(spec, sampling):
    return init_state(spec, (M, C), penalties=sampling.flags.penalties)
