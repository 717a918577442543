"""The boards of an episode come out of its first prompt and its replies as the environment had them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esopt_jax.envs.sudoku import Sudoku
from esopt_jax.envs.sudoku_boards import played_boards

_AROUND = ("{}", "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n", "<bos>user\n{}\n<end>")
_ENVIRONMENTS = {
    (prompt, size): Sudoku(prompt=prompt, size=size, mask=5, train_tasks=8, eval_tasks=8)
    for prompt in ("compact", "published")
    for size in (4, 9)
}
_REPLIES = st.one_of(
    st.tuples(*[st.integers(0, 9)] * 3).map(lambda move: "set {} {} {}".format(*move)),
    st.text(max_size=20),
    st.just("1.34\n2.43\n....\n1111"),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(_ENVIRONMENTS)), st.integers(0, 7), st.sampled_from(_AROUND), st.data())
def test_they_are_those_of_the_environment(which, index, around, data):
    env = _ENVIRONMENTS[which]
    state, observation = env.reset(env.tasks("train")[index], 0)
    prompt = around.format(observation.messages[0]["content"])
    blanks = [i for i, cell in enumerate(state.board) if cell == "."]
    fills = st.tuples(st.sampled_from(blanks), st.integers(1, which[1])).map(
        lambda move: f"set {move[0] // which[1] + 1} {move[0] % which[1] + 1} {move[1]}"
    )
    replies, boards, done = [], [state.board], False
    while not done:
        replies.append(data.draw(fills | _REPLIES))
        state, _, _, done, _ = env.step(state, replies[-1])
        boards.append(state.board)
    assert played_boards(prompt, replies, size=which[1]) == boards


@pytest.mark.parametrize("prompt", ["", "1234", "1.34\n2.43\n", "12345\n12345\n12345\n12345", "r1: 1 2 | 3 4"])
def test_a_prompt_without_a_board_has_none(prompt):
    assert played_boards(prompt, ["set 1 1 1"], size=4) is None


def test_of_several_boards_the_first_counts():
    env = Sudoku(prompt="published", size=4, mask=3, train_tasks=2)
    state, _ = env.reset(env.tasks("train")[0], 0)
    cell = state.board.index(".")
    later, observation, *_ = env.step(state, f"set {cell // 4 + 1} {cell % 4 + 1} 1")
    shown = observation.messages[0]["content"]
    assert played_boards(shown, [], size=4) == [state.board] != [later.board]
