import pytest

from esopt_jax.envs.oneword import KINDS, OneWord, score
from esopt_jax.errors import EsoptError
from esopt_jax.types import Environment


def play(env, task, replies):
    """What the environment said and the steps it took."""
    state, observation = env.reset(task, 0)
    said, steps = [], []
    for reply in replies:
        assert observation.mode == "append"
        said.append(observation.messages)
        steps.append(env.step(state, reply))
        state, observation = steps[-1].state, steps[-1].observation
    assert observation is None
    return said, steps


def answers(task):
    return [word for _, word in task.data[1]]


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_the_bare_words_earn_the_reward_at_the_end(turns):
    env = OneWord(turns=turns)
    task = env.tasks("train")[0]
    said, steps = play(env, task, [f" {word.upper()}.\n" for word in answers(task)[:turns]])
    assert isinstance(env, Environment)
    assert [step.reward for step in steps] == [0.0] * (turns - 1) + [1.0]
    assert [step.done for step in steps] == [False] * (turns - 1) + [True]
    assert not any(step.info["invalid"] for step in steps)
    system, first = said[0]
    assert system["role"] == "system"
    assert all(word in first["content"] for word in task.data[0])
    kinds = [kind for kind, _ in task.data[1]]
    assert all(kind in messages[-1]["content"] for kind, messages in zip(kinds[:turns], said, strict=True))
    assert not any(word in m["content"] for messages in said[1:] for m in messages for word in task.data[0])


def test_the_reward_is_the_mean_of_the_turns():
    env = OneWord(turns=3)
    task = env.tasks("eval")[1]
    one, two, _ = answers(task)
    _, steps = play(env, task, [one, f"It is {two}", one])  # 1, (1 + 1/3) / 2, (0 + 1) / 2
    assert steps[-1].reward == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    assert [step.info["right"] for step in steps] == [True, True, False]
    assert [step.info["invalid"] for step in steps] == [False, True, False]
    assert [step.info["words"] for step in steps] == [1, 3, 1]


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("dog", 1.0),
        ('"Dog!"', 1.0),
        ("dog dog", 0.75),
        ("The answer is dog", (1 + 1 / 4) / 2),
        ("The answer is hammer", 1 / 8),
        ("dog, hammer or cherry", 1 / 8),  # naming all of them is no answer
        ("dogs", 1 / 2),
        ("...", 0.0),
        ("", 0.0),
        ("<think>hammer or dog</think>\ndog", 1.0),
    ],
)
def test_scores(reply, value):
    assert score(reply, "dog", ["hammer", "cherry"])[0] == pytest.approx(value)


def test_no_held_out_word_is_ever_trained_on():
    env = OneWord(count=2000)
    train, held_out = ({word for task in env.tasks(split) for word in task.data[0]} for split in ("train", "eval"))
    assert not train & held_out
    assert train | held_out == {word for words in KINDS.values() for word in words.split()}
    assert len(held_out) == 3 * len(KINDS)


def test_no_word_is_of_two_kinds():
    words = [word.lower() for kind in KINDS.values() for word in kind.split()]
    assert len(words) == len(set(words)) == 12 * len(KINDS)


def test_tasks_are_fixed_and_each_has_one_word_of_each_of_three_kinds():
    env = OneWord(count=100)
    tasks = env.tasks("train")
    assert tasks == OneWord(count=200).tasks("train")[:100]
    assert len({task.data for task in tasks}) == 100
    for task in tasks:
        words, questions = task.data
        assert sorted(words) == sorted(word for _, word in questions)
        assert len({kind for kind, _ in questions}) == 3
        assert all(word in KINDS[kind].split() for kind, word in questions)
    places = [task.data[0].index(answers(task)[0]) for task in tasks]
    assert all(places.count(place) > 15 for place in range(3))  # no place is favoured


@pytest.mark.parametrize(("options", "problem"), [({"turns": 4}, "turns is 4"), ({"count": 0}, "count is 0")])
def test_options_out_of_range(options, problem):
    with pytest.raises(EsoptError, match=problem):
        OneWord(**options)
