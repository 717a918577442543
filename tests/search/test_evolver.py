"""Weights that learn from the programs they write: the rewards they get, the updates, and a search that goes on."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_agent
from toy_search import Guess, HereScorer, toy_config, toy_writer

from esopt_jax.core.digest import digest
from esopt_jax.core.update import update
from esopt_jax.errors import EsoptError
from esopt_jax.models.load import load_model
from esopt_jax.search.config import WriterConfig, from_mapping
from esopt_jax.search.evolver import ModelEvolver
from esopt_jax.search.learning import Updated, finished_batches, member_rewards
from esopt_jax.search.loop import search
from esopt_jax.search.model_writer import make_desk
from esopt_jax.search.run_files import SearchFolder, read_recorded
from esopt_jax.search.settings import EvolveConfig, SearchConfig
from esopt_jax.search.state import SearchState, next_round, replay
from esopt_jax.search.writer import Reply
from esopt_jax.training.jsonl import read

WRITER = {"backend": "model", "model": "tiny", "max_tokens": 8, "max_prompt_tokens": 16}


def config_of(es=None, **settings):
    es = {"enabled": True, "sigma": 0.1, "alpha": 0.05, "sigma_end": 0.05, **(es or {})}
    return from_mapping({"search": settings, "es": es, "writer": WRITER, "progress": "none"})


class NumberEvolver:
    """A "model" of one weight, which members write into their program; parents are not looked at."""

    def __init__(self, *, sigma=0.1, alpha=0.3, members=10, start=0.0):
        self.weight, self.sigma, self.alpha, self.members, self.done = start, sigma, alpha, members, 0

    def _noise(self):
        return np.random.default_rng([7, self.done]).normal(size=self.members)

    def write(self, requests):
        eps = self._noise()
        values = [self.weight + (0 if r.member is None else self.sigma * eps[r.member]) for r in requests]
        return [Reply(f"```python\ndef guess(scale):\n    return {value!r}\n```") for value in map(float, values)]

    def learn(self, rewards):
        spread = np.std(rewards)
        weights = (np.array(rewards) - np.mean(rewards)) / spread if spread > 1e-6 else np.zeros(len(rewards))
        self.weight += self.alpha * float(weights @ self._noise()) / len(weights)
        self.done += 1
        return Updated(self.done - 1, self.sigma, self.alpha, tuple(rewards), tuple(weights), 0.0, f"{self.weight!r}")


def evolve(folder, evolver, *, es=None, scorer=None, resume=False, **settings):
    at = {"brief": Guess(), "scorer": scorer or HereScorer(), "writer": evolver, "evolver": evolver}
    return search(config_of(es, **settings), folder, **at, resume=resume)


@pytest.mark.parametrize("rewards", ["ranked", "published"])
@pytest.mark.parametrize("method", ["eoh", "sample"])
def test_weights_move_to_where_programs_are_better(tmp_path, method, rewards):
    es = {"rewards": rewards, "parents": 1 if rewards == "ranked" else 0}
    evolver = NumberEvolver(members=20 if method == "sample" else 10)
    evolve(tmp_path, evolver, es=es, method=method, budget=600)
    assert abs(evolver.weight - 2.5) < 0.6


def test_shuffled_rewards_teach_nothing(tmp_path):
    """The control: the same loop, and the weight ends where a walk without a direction ends."""
    ends = []
    for seed in range(4):
        evolver = NumberEvolver(members=20)
        es = {"control": "shuffled_rewards", "seed": seed, "parents": 1}
        evolve(tmp_path / str(seed), evolver, es=es, method="sample", budget=600)
        ends.append(evolver.weight)
    assert abs(np.mean(ends)) < 1.0 and min(abs(end - 2.5) for end in ends) > 1.0
    rewards = read(tmp_path / "0" / "updates.jsonl")[0]["rewards"]
    assert sorted(rewards) == pytest.approx(np.linspace(-0.5, 0.5, 20).tolist())


def test_without_a_difference_they_do_not_move(tmp_path):
    evolver = NumberEvolver(members=20)
    evolve(tmp_path, evolver, scorer=HereScorer(constant=True), method="sample", budget=200)
    assert evolver.done == 10 and evolver.weight == 0.0


def test_updates_follow_the_batches_of_members(tmp_path):
    evolve(tmp_path, NumberEvolver(), budget=1000, accounting="published", initial_batches=1)
    rows = read(tmp_path / "updates.jsonl")
    found = read_recorded(SearchFolder(tmp_path)).programs
    assert len(rows) == 50
    assert {p.operator for p in found if p.member is not None} == {"m1", "m2"}
    assert [p.member for p in found if p.batch == rows[0]["batch"]] == list(range(10))
    assert all(p.member is None for p in found if p.operator in ("i1", "e1", "e2"))


def test_a_batch_that_the_budget_cut_short_gives_no_update(tmp_path):
    evolver = NumberEvolver(members=20)
    evolve(tmp_path, evolver, method="sample", budget=50)
    assert evolver.done == 2


@pytest.mark.parametrize(("parents", "common"), [(2, True), (2, False), (0, True)])
def test_members_share_requests(parents, common):
    es = EvolveConfig(enabled=True, parents=parents, common_random_numbers=common)
    settings = SearchConfig()
    members = tuple(dataclasses.replace(_program(call), objective=float(call)) for call in range(10))
    state = SearchState(population=members, operator="m1", batch=4, calls=40, counted=40, initial=1)
    asked = next_round(settings, state, direction="min", es=es)
    assert [slot.member for slot in asked.slots] == list(range(10))
    shared = [{(slot.seed, slot.parents) for slot in part} for part in (asked.slots[:5], asked.slots[5:])]
    if parents and common:
        assert [len(part) for part in shared] == [1, 1] and shared[0] != shared[1]
    else:
        assert len({slot.seed for slot in asked.slots}) == 10
    if parents:
        assert all(len({slot.parents for slot in part}) == 1 for part in (asked.slots[:5], asked.slots[5:]))
    elsewhere = next_round(settings, dataclasses.replace(state, operator="e1"), direction="min", es=es)
    assert {slot.member for slot in elsewhere.slots} == {None}
    assert next_round(settings, state, direction="min").slots[0].member is None


def _program(call, **changes):
    from esopt_jax.search.program import Program

    return Program(call, 0, call, 0, "i1", (), 0, "", "c", 1.0, "", str(call), **changes)


def test_rewards_are_those_of_the_parents_that_were_shown():
    settings, es = (
        SearchConfig(population_size=4, parents=1),
        EvolveConfig(enabled=True, rewards="published", parents=0),
    )
    before = SearchState(population=tuple(_program(call) for call in range(3)), operator="m2", batch=9)
    before = dataclasses.replace(
        before,
        population=tuple(
            dataclasses.replace(p, objective=v) for p, v in zip(before.population, (1, 3, 7), strict=True)
        ),
    )
    children = [(0, 0.5), (1, 6.0), (2, None), (0, 9.0)]
    written = [
        dataclasses.replace(
            _program(10 + i), slot=i, operator="m2", parents=(parent,), objective=value, reason="" if value else "bad"
        )
        for i, (parent, value) in enumerate(children)
    ]
    found = member_rewards(settings, es, before, written, direction="min")
    assert found == [0.5, -3.0, 0.0, -1.0]  # P - C; P - C; max(P - W, -1) of the worst parent; worse than W
    flipped = [dataclasses.replace(p, objective=None if p.objective is None else -p.objective) for p in written]
    mirrored = dataclasses.replace(
        before, population=tuple(dataclasses.replace(p, objective=-p.objective) for p in before.population)
    )
    assert member_rewards(settings, es, mirrored, flipped, direction="max") == found
    assert member_rewards(settings, es, before, written[:3], direction="min") is None


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(tiny_agent.write_model(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture(scope="module")
def desk(model):
    return make_desk(model, WriterConfig(**WRITER))


class LetterEvolver(ModelEvolver):
    """The tiny model knows no Python: its letters are read as a number."""

    def write(self, requests):
        prompts = [dataclasses.replace(r, messages=({"role": "user", "content": "abc"},)) for r in requests]
        values = [sum(map(ord, reply.text)) % 97 / 20 for reply in super().write(prompts)]
        return [Reply(f"def guess(scale):\n    return {value!r}") for value in values]


ES = {"plan": "low_rank", "rank": 1, "members_per_pass": 4}


def letters(model, desk, **settings):
    config = config_of(ES, **settings)
    return LetterEvolver(model, desk, config.search, config.es, rows=4)


def test_a_search_with_updates_goes_on_to_the_same_weights(tmp_path, model, desk):
    settings = {"budget": 70, "population_size": 6, "seed": 3}

    def run(folder, *, stop=None, resume=False):
        evolver, left = letters(model, desk, **settings), stop

        def at(moment):
            nonlocal left
            if left is not None:
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt

        ways = {"brief": Guess(), "scorer": HereScorer(), "writer": evolver, "evolver": evolver}
        state = search(config_of(ES, **settings), folder, **ways, resume=resume, at=at)
        return state, digest(evolver.master)

    state, weights = run(tmp_path / "whole")
    rows = read(tmp_path / "whole" / "updates.jsonl")
    assert len(rows) >= 4 and len({row["digest"] for row in rows}) > 1
    assert rows[-1]["digest"] == weights != digest(dict(model.params))
    for stop in (40, 75):
        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(EsoptError, match="interrupted"):
            run(folder, stop=stop)
        assert run(folder, resume=True) == (state, weights)
        assert read(folder / "updates.jsonl") == rows


class DigitEvolver(ModelEvolver):
    """The more digits the tiny model writes, the nearer the program is to what is wanted."""

    def write(self, requests):
        prompts = [dataclasses.replace(r, messages=({"role": "user", "content": "abc"},)) for r in requests]
        values = [2.5 * sum(map(str.isdigit, reply.text)) / 8 for reply in super().write(prompts)]
        return [Reply(f"def guess(scale):\n    return {value!r}") for value in values]


def test_a_model_learns_and_its_control_does_not(tmp_path, model, desk):
    losses = {}
    for control in ("none", "shuffled_rewards"):
        es = {"sigma": 0.1, "sigma_end": 0.05, "alpha": 0.06, "parents": 4, "seed": 1, "control": control}
        config = config_of(es, method="sample", budget=16 * 60, batch_size=16)
        evolver = DigitEvolver(model, desk, config.search, config.es, rows=4)
        ways = {"brief": Guess(), "scorer": HereScorer(), "writer": evolver, "evolver": evolver}
        search(config, tmp_path / control, **ways)
        found = [p.objective for p in read_recorded(SearchFolder(tmp_path / control)).programs]
        losses[control] = np.array(found).reshape(60, 16).mean(axis=1)
    first, last = losses["none"][:5].mean(), losses["none"][-10:].mean()
    assert last < first - 0.5
    assert losses["shuffled_rewards"][-10:].mean() > last + 0.4


def test_other_weights_than_those_recorded_are_told(tmp_path, model, desk, caplog):
    settings = {"budget": 60, "population_size": 6}
    evolver = letters(model, desk, **settings)
    ways = {"brief": Guess(), "scorer": HereScorer()}
    search(config_of(ES, **settings), tmp_path, **ways, writer=evolver, evolver=evolver)
    halved = dataclasses.replace(model, params={path: leaf * 0.5 for path, leaf in model.params.items()})
    other = letters(halved, desk, **settings)
    search(config_of(ES, **settings), tmp_path, **ways, writer=other, evolver=other, resume=True)
    assert "gave other weights than those recorded" in caplog.text


def test_an_update_is_that_of_the_core(model, desk):
    config = config_of({"plan": "full"}, method="sample", batch_size=4)
    evolver = ModelEvolver(model, desk, config.search, config.es, rows=4)
    first = evolver.learn([1.0, 2.0, 3.0, 4.0])
    master = {path: jnp.array(leaf) for path, leaf in model.params.items()}
    weights = np.array([-3, -1, 1, 3]) / np.sqrt(5)
    wanted, stats = update(0, 0, master, jnp.float32(weights), specs=model.specs, alpha=0.05)
    assert first.weights == pytest.approx(tuple(weights))
    assert first.norm == pytest.approx(float(stats.update_norm)) and first.digest == digest(wanted)
    same = evolver.learn([2.0] * 4)
    assert (same.digest, same.norm, same.weights) == (first.digest, 0.0, (0.0,) * 4)
    assert [first.update, same.update] == [0, 1]


def test_sigma_is_shared_by_the_updates_of_a_generation(model, desk):
    published = {"sigma": 1e-3, "sigma_end": 0.0, "rewards": "published", "parents": 0}
    config = config_of(published, budget=1000)
    evolver = ModelEvolver(model, desk, config.search, config.es, rows=4)
    sigmas = []
    for _ in range(50):
        sigmas.append(evolver.sigma)
        evolver.learn([0.0] * 10)
    assert sigmas[0::2] == sigmas[1::2]
    assert sigmas[0] == 1e-3 and sigmas[-1] == 0
    cosine = 0.5 * (1 + np.cos(np.pi * np.arange(25) / 24)) * 1e-3
    assert sigmas[0::2] == pytest.approx(cosine.tolist(), abs=1e-12)


@pytest.mark.parametrize(
    ("es", "message"),
    [
        ({"sigma_end": 0}, "es.sigma_end is 0: the last updates would be noise"),
        ({"parents": 0}, "es.parents is 0, so that ranked rewards have nothing to compare"),
        ({"parents": 6}, "es.parents is 6; it must be 0 (each member its own) to 5"),
        ({"antithetic": True}, "10 members and 2 parents do not fit"),
        ({"scope": "lora:4"}, "es.scope is 'lora:4'"),
        ({"members_per_pass": 11}, "es.members_per_pass is 11"),
    ],
)
def test_a_config_that_is_wrong(es, message):
    with pytest.raises(EsoptError) as fault:
        config_of(es)
    assert message in str(fault.value)


def test_weights_need_a_model():
    with pytest.raises(EsoptError, match=r"es\.enabled is true while writer.backend is 'scripted'"):
        from_mapping({"es": {"enabled": True}, "writer": {"backend": "scripted"}})


def test_finished_batches_are_those_of_the_search(tmp_path):
    config = toy_config(budget=60, retries=1)
    search(config, tmp_path, brief=Guess(), scorer=HereScorer(), writer=toy_writer())
    programs = read_recorded(SearchFolder(tmp_path)).programs
    batches = list(finished_batches(replay(config.search, programs, direction="min")))
    assert [p for _, batch in batches for p in batch] == list(programs)
    assert [before.batch for before, _ in batches] == list(range(len(batches)))
