import pytest

from esopt_jax.envs.echo import Echo
from esopt_jax.types import Environment


def digits(env, task, seed):
    """What the environment says in an episode of correct answers, and its steps."""
    state, observation = env.reset(task, seed)
    said, steps = [], []
    while observation is not None:
        assert observation.mode == "append"
        said.append(observation.messages[0]["content"])
        steps.append(env.step(state, "0" if len(said) == 1 else said[-2]))
        state, observation = steps[-1].state, steps[-1].observation
    return said, steps


def test_repeating_the_digit_of_the_turn_before_earns_the_reward():
    env = Echo(turns=5)
    said, steps = digits(env, env.tasks("train")[0], 0)
    assert isinstance(env, Environment)
    assert len(said) == len(steps) == 5
    assert [step.reward for step in steps] == [0.0] * 4 + [1.0]
    assert [step.done for step in steps] == [False] * 4 + [True]


@pytest.mark.parametrize("wrong_turn", range(4))
def test_one_wrong_answer_loses_it(wrong_turn):
    env = Echo(turns=4)
    task = env.tasks("eval")[3]
    said, _ = digits(env, task, 1)
    state, _ = env.reset(task, 1)
    for turn, answer in enumerate(["0", *said[:-1]]):
        step = env.step(state, str((int(answer) + 1) % 10) if turn == wrong_turn else answer)
        state = step.state
        assert not step.info["invalid"]
    assert (step.done, step.reward) == (True, 0.0)


def test_digits_follow_from_task_and_seed():
    env = Echo(turns=12)
    one, two = env.tasks("train")[:2]
    assert digits(env, one, 0)[0] == digits(env, one, 0)[0]
    assert len({tuple(digits(env, task, seed)[0]) for task in (one, two) for seed in (0, 1)}) == 4


@pytest.mark.parametrize("answer", ["", "12", "a", "\u0663", "the digit is 3"])
def test_anything_but_one_digit_is_invalid(answer):
    env = Echo()
    state, _ = env.reset(env.tasks("train")[0], 0)
    assert env.step(state, answer).info["invalid"]


def test_thoughts_are_ignored():
    env = Echo(turns=1)
    state, _ = env.reset(env.tasks("train")[0], 0)
    assert env.step(state, "<think>first turn</think>\n0").reward == 1.0
