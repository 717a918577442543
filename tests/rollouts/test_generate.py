"""`generate` on the shipped model: greedy replies are those of one prompt at a time, seeds are seeds."""

import pytest

from esopt_jax.config import RolloutConfig
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.rollouts.generate import generate

PROMPTS = ["1 . 3 4", "4 3 2 1 1 2 . 4", "2"]


@pytest.fixture(scope="module")
def model():
    return load_model("builtin:sudoku-4x4")


def test_replies_do_not_depend_on_the_batch(model):
    greedy = RolloutConfig(temperature=0, max_new_tokens=6)
    together = generate(model, PROMPTS, rollout=greedy)
    assert together == [generate(model, [prompt], rollout=greedy)[0] for prompt in PROMPTS]
    assert all(together) and len(set(together)) > 1


def test_a_seed_is_a_reply(model):
    free = RolloutConfig(temperature=1.5, max_new_tokens=8)
    first, again, other = (generate(model, ["2"] * 4, rollout=free, seed=seed) for seed in (0, 0, 1))
    assert first == again != other and len(set(first)) > 1


def test_messages_are_taken_as_they_are(model):
    greedy = RolloutConfig(temperature=0, max_new_tokens=6)
    (text,) = generate(model, [[{"role": "user", "content": PROMPTS[0]}]], rollout=greedy)
    assert text == generate(model, PROMPTS[:1], rollout=greedy)[0]


def test_other_weights_can_be_given(model):
    greedy = RolloutConfig(temperature=0, max_new_tokens=6)
    halved = {path: leaf * 0.0 for path, leaf in model.params.items()}
    assert generate(model, PROMPTS, params=halved, rollout=greedy) != generate(model, PROMPTS, rollout=greedy)


def test_nothing_to_reply_to_is_refused(model):
    for prompts in ([], "2"):
        with pytest.raises(EsoptError, match="give a list of at least one"):
            generate(model, prompts)
