import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esopt_jax.envs.sudoku import Sudoku, is_success
from esopt_jax.errors import EsoptError
from esopt_jax.types import Environment


def blanks_of(puzzle):
    return [i for i, digit in enumerate(puzzle.givens) if digit == "."]


def at(puzzle, cell, digit):
    return f"set {cell // puzzle.size + 1} {cell % puzzle.size + 1} {digit}"


def right(puzzle, cell):
    return at(puzzle, cell, puzzle.solution[cell])


def wrong(puzzle, cell):
    return at(puzzle, cell, next(d for d in "1234" if d != puzzle.solution[cell]))


def start(env, index=0):
    state, _ = env.reset(env.tasks("train")[index], 0)
    return state, state.puzzle, blanks_of(state.puzzle)


def play(env, state, actions):
    steps = []
    for action in actions:
        steps.append(env.step(state, action))
        state = steps[-1].state
    return steps


@pytest.fixture
def env():
    return Sudoku(prompt="compact", mask=3, train_tasks=20, eval_tasks=20)


def test_it_is_an_environment_with_the_default_counts():
    env = Sudoku()
    assert isinstance(env, Environment)
    assert (len(env.tasks("train")), len(env.tasks("eval"))) == (4096, 1024)
    assert env.tasks("train")[7].id == "sudoku-4x4-mask6-train-000007"
    assert env.tasks("train") is env.tasks("train")


@pytest.mark.parametrize(("size", "mask"), [(4, 3), (4, 12), (9, 4)])
def test_filling_every_blank_rightly_solves(size, mask):
    env = Sudoku(prompt="published", size=size, mask=mask, train_tasks=3)
    state, puzzle, blanks = start(env)
    steps = play(env, state, [right(puzzle, cell) for cell in reversed(blanks)])
    assert [step.reward for step in steps] == [0.0] * (mask - 1) + [1.0]
    assert [step.done for step in steps] == [False] * (mask - 1) + [True]
    assert [step.info["solved"] for step in steps] == [False] * (mask - 1) + [True]
    assert all(step.observation is not None for step in steps[:-1])
    assert steps[-1].observation is None
    assert steps[-1].state.board == puzzle.solution


def test_a_wrong_digit_is_accepted_silently_and_stays(env):
    state, puzzle, blanks = start(env)
    first = env.step(state, wrong(puzzle, blanks[0]))
    assert (first.reward, first.done, first.info["invalid"], first.info["verdict"]) == (0.0, False, False, "placed")
    again = env.step(first.state, right(puzzle, blanks[0]))
    assert (again.info["invalid"], again.info["verdict"]) == (True, "filled")
    assert again.state.board == first.state.board
    *_, last = play(env, again.state, [right(puzzle, cell) for cell in blanks[1:]])
    assert (last.done, last.reward, last.info["solved"]) == (True, 0.0, False)


@pytest.mark.parametrize(
    ("action", "verdict"), [("what?", "format"), ("set 5 1 1", "range"), ("set 0 1 1", "range"), (None, "given")]
)
def test_a_rejected_action_costs_a_turn_and_nothing_else(env, action, verdict):
    state, puzzle, blanks = start(env)
    if action is None:
        action = at(puzzle, next(i for i in range(16) if i not in blanks), 1)
    step = env.step(state, action)
    assert step.info == {"invalid": True, "verdict": verdict, "solved": False}
    assert (step.state.board, step.state.turn) == (puzzle.givens, 1)
    assert (step.reward, step.done) == (0.0, False)


def test_an_episode_has_three_turns_a_blank(env):
    state, puzzle, blanks = start(env)
    steps = play(env, state, ["pass"] * 9)
    assert [step.done for step in steps] == [False] * 8 + [True]
    assert {step.reward for step in steps} == {0.0}
    assert steps[-1].observation is None
    *_, last = play(env, state, ["pass"] * 6 + [right(puzzle, cell) for cell in blanks])  # solved in the last turn
    assert (last.done, last.reward) == (True, 1.0)


def test_max_turns_overrides():
    env = Sudoku(mask=3, max_turns=2, train_tasks=1)
    steps = play(env, start(env)[0], ["pass"] * 2)
    assert [step.done for step in steps] == [False, True]


def test_step_is_pure(env):
    state, puzzle, blanks = start(env)
    one, two = (env.step(state, right(puzzle, blanks[0])) for _ in range(2))
    assert one == two
    assert (state.board, state.turn) == (puzzle.givens, 0)


def test_reset_does_not_depend_on_the_seed(env):
    task = env.tasks("eval")[3]
    assert env.reset(task, 0) == env.reset(task, 1)


def test_success_checks_the_givens_and_not_the_stored_solution():
    assert is_success("12..............", "1234341221434321")
    assert is_success("................", "1234341243212143")
    assert not is_success("2...............", "1234341221434321")
    assert not is_success("................", "1234341221434312")
    ambiguous = Sudoku(mask=1, train_tasks=1).tasks("train")[0].data._replace(givens="." * 16, mask=16)
    env = Sudoku()
    state = env.reset(type(env.tasks("train")[0])("other", ambiguous), 0)[0]
    other = "1234341221434321" if ambiguous.solution != "1234341221434321" else "1243341221344321"
    *_, last = play(env, state, [at(ambiguous, i, digit) for i, digit in enumerate(other)])
    assert last.reward == 1.0


ANY_TEXT = st.one_of(
    st.text(max_size=30),
    st.tuples(st.integers(-1, 6), st.integers(-1, 6), st.integers(-1, 6)).map(lambda n: "set {} {} {}".format(*n)),
    st.sampled_from(
        ["set 1 1 1", "SET 2 2 2 ", "</think>set 3 3 3", "set 4 4 4\nset 1 1 1", "set " + "1" * 9000 + " 1 1"]
    ),
)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.lists(ANY_TEXT, max_size=20), st.sampled_from(["compact", "published"]), st.integers(0, 19))
def test_any_text_is_played_by_the_rules(actions, prompt, index):
    """An oracle on nested lists, written from the rules alone."""
    env = Sudoku(prompt=prompt, mask=4, train_tasks=20)
    state, puzzle, _ = start(env, index)
    givens = [list(puzzle.givens[r * 4 : r * 4 + 4]) for r in range(4)]
    board = [row[:] for row in givens]
    for turn, action in enumerate(actions):
        words = action.rpartition("</think>")[2].strip().replace("\t", " ").split(" ")
        words = [word for word in words if word]
        placed = False
        if len(words) == 4 and words[0].lower() == "set" and all(word in ("1", "2", "3", "4") for word in words[1:]):
            r, c = int(words[1]) - 1, int(words[2]) - 1
            if board[r][c] == ".":
                board[r][c] = words[3]
                placed = True
        step = env.step(state, action)
        full = all("." not in row for row in board)
        assert step.state.board == "".join(map("".join, board))
        assert step.info["invalid"] is not placed
        assert step.done == (full or turn + 1 == 12)
        assert step.reward == float(full and step.state.board == puzzle.solution)  # the puzzle has one solution
        assert (step.observation is None) == step.done
        if step.done:
            break
        state = step.state


# --- reward variants --------------------------------------------------------------------------------------------------


def test_variants_are_off_by_default(env):
    state, puzzle, blanks = start(env)
    steps = play(env, state, ["pass", right(puzzle, blanks[0]), wrong(puzzle, blanks[1])])
    assert [step.reward for step in steps] == [0.0, 0.0, 0.0]


def test_an_invalid_action_costs_the_penalty():
    env = Sudoku(mask=3, train_tasks=1, invalid_penalty=0.25)
    state, puzzle, blanks = start(env)
    steps = play(env, state, ["pass", *(right(puzzle, cell) for cell in blanks)])
    assert [step.reward for step in steps] == [-0.25, 0.0, 0.0, 1.0]


def test_progress_is_shared_out_over_the_blanks():
    env = Sudoku(mask=4, train_tasks=1, progress_reward=0.5)
    state, puzzle, blanks = start(env)
    steps = play(
        env, state, [right(puzzle, blanks[0]), wrong(puzzle, blanks[1]), *(right(puzzle, c) for c in blanks[2:])]
    )
    assert [step.reward for step in steps] == [0.125, 0.0, 0.125, 0.125]
    steps = play(env, state, [right(puzzle, cell) for cell in blanks])
    assert [step.reward for step in steps] == [0.125, 0.125, 0.125, 1.125]


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    st.lists(st.sampled_from(["right", "wrong", "pass"]), min_size=3, max_size=3), st.sampled_from([0.0, 0.3, 0.999])
)
def test_variants_neither_make_nor_break_a_success(kinds, progress):
    env = Sudoku(mask=1, max_turns=3, train_tasks=1, progress_reward=progress, invalid_penalty=2.0)
    state, puzzle, (cell,) = start(env)
    for kind in kinds:
        step = env.step(state, {"right": right, "wrong": wrong, "pass": lambda *_: "pass"}[kind](puzzle, cell))
        state = step.state
        if step.done:
            break
    assert step.done
    assert (step.reward >= env.success_at) == step.info["solved"] == (state.board == puzzle.solution)


# --- bad options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 6}, "size is 6; it must be 4 or 9"),
        ({"size": True}, "size is True"),
        ({"mask": 0}, "mask is 0; for generated 4x4 puzzles it must be in 1 .. 12, or a list of such"),
        ({"mask": 13}, "mask is 13"),
        ({"mask": [6, 13]}, r"mask is \[6, 13\]"),
        ({"mask": []}, r"mask is \[\]"),
        ({"mask": "6"}, "mask is '6'"),
        ({"mask": None}, "mask is None"),
        ({"mask": True}, "mask is True"),
        ({"size": 9, "mask": 56}, "1 .. 55"),
        ({"source": "published", "mask": 5}, "size is 4; the published puzzles are 9x9, so set size to 9"),
        ({"source": "published", "size": 9, "mask": 6}, "mask is 6; .* must be in 5, 10, 15, 20"),
        ({"source": "publised"}, "did you mean 'published'"),
        ({"prompt": "compct"}, "prompt is 'compct'; did you mean 'compact'"),
        ({"max_turns": -1}, "max_turns is -1"),
        ({"train_tasks": 0}, "train_tasks is 0; it must be a whole number, 1 or more"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"invalid_penalty": -0.1}, "invalid_penalty is -0.1"),
        ({"invalid_penalty": float("nan")}, "invalid_penalty is nan"),
        ({"invalid_penalty": float("inf")}, "invalid_penalty is inf"),
        ({"progress_reward": 1.0}, "progress_reward is 1.0; it must be a number, 0 .off. or more and below 1"),
        ({"progress_reward": "0.1"}, "progress_reward is '0.1'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(EsoptError, match=message):
        Sudoku(**options)


def test_unknown_split(env):
    with pytest.raises(EsoptError, match="split is 'evall'; did you mean 'eval'"):
        env.tasks("evall")
