"""Programs from a model of ours: an answer follows from its request and the weights, and from nothing else."""

import jax.numpy as jnp
import pytest
import tiny_agent

from esopt_jax.core.perturb import member_view, perturb_population
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.search.config import WriterConfig
from esopt_jax.search.model_writer import MembersWriter, ModelWriter, make_desk
from esopt_jax.search.writer import Request

CONFIG = WriterConfig(model="tiny", max_tokens=10, max_prompt_tokens=24)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(tiny_agent.write_model(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture(scope="module")
def desk(model):
    return make_desk(model, CONFIG)


def request(text, seed, **changes):
    return Request(({"role": "user", "content": text},), seed, **{"max_tokens": 10, **changes})


REQUESTS = [request("abcdefgh"[: 1 + i % 7], 100 + i) for i in range(11)]


def texts(replies):
    return [reply.text for reply in replies]


def test_one_answer_a_request_in_their_order(model, desk):
    writer = ModelWriter(desk, dict(model.params), rows=4)
    every = texts(writer.write(REQUESTS))
    assert len(set(every)) > 5
    assert texts(writer.write(REQUESTS[::-1])) == every[::-1]
    assert [texts(writer.write([one]))[0] for one in REQUESTS[:5]] == every[:5]


def test_the_seed_decides_and_the_weights(model, desk):
    writer = ModelWriter(desk, dict(model.params), rows=4)
    one, same, other = texts(writer.write([request("abc", 5), request("abc", 5), request("abc", 6)]))
    assert one == same != other
    halved = {path: leaf * 0.5 for path, leaf in model.params.items()}
    assert texts(ModelWriter(desk, halved, rows=4).write(REQUESTS)) != texts(writer.write(REQUESTS))


def test_answers_end_at_their_length(model, desk):
    replies = ModelWriter(desk, dict(model.params), rows=4).write(REQUESTS)
    assert {reply.ended for reply in replies} == {"stop", "length"}
    for reply in replies:
        assert len(reply.text.replace("<unk>", "?")) <= (10 if reply.ended == "length" else 9)


@pytest.mark.parametrize("plan", ["full", "low_rank"])
def test_members_write_as_they_would_alone(model, desk, plan):
    at = {"specs": model.specs, "sigma": 0.3, "plan": plan, "rank": 1, "dtype": jnp.float32}
    members = [2, 5, 0]
    views = perturb_population(0, 0, jnp.array(members), dict(model.params), **at)
    asked = [request(one.messages[0]["content"], one.seed, member=members[i % 3]) for i, one in enumerate(REQUESTS)]
    together = texts(MembersWriter(desk, views, members, rows=2).write(asked))
    for lane, member in enumerate(members):
        mine = [one for one in asked if one.member == member]
        alone = texts(ModelWriter(desk, member_view(views, lane), rows=2).write(mine))
        assert alone == [text for one, text in zip(asked, together, strict=True) if one.member == member]
    assert together != texts(ModelWriter(desk, dict(model.params), rows=2).write(asked))


def test_equal_seeds_are_common_random_numbers(model, desk):
    """Without a perturbation, members that are asked the same with the same seed say the same."""
    at = {"specs": model.specs, "sigma": 0.0, "plan": "full", "rank": 1, "dtype": jnp.float32}
    views = perturb_population(0, 0, jnp.arange(4), dict(model.params), **at)
    writer = MembersWriter(desk, views, range(4), rows=1)
    assert len(set(texts(writer.write([request("abc", 9, member=member) for member in range(4)])))) == 1
    assert len(set(texts(writer.write([request("abc", member, member=member) for member in range(4)])))) > 1


def test_what_cannot_be_written(model, desk):
    writer = ModelWriter(desk, dict(model.params), rows=4)
    with pytest.raises(EsoptError, match=r"max_prompt_tokens is 24: a prompt has \d+; set it to at least that"):
        writer.write([request("a" * 40, 0)])
    with pytest.raises(EsoptError, match="temperature, top_p, max_tokens"):
        writer.write([request("a", 0, temperature=0.5)])
