"""Episodes of a whole population, and of a single model.

`members_per_pass` members are played at once, each in a lane of `slots` rows; where its copy is small, a member whose
episodes have ended makes room for the next, else all lanes change together. The number of rows never changes, so one
compiled program serves all. What a member plays does not depend on its lane, its rows or its company.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from esopt_jax.config import ESConfig, RolloutConfig
from esopt_jax.core.perturb import perturb_population
from esopt_jax.core.scope import tuned_specs
from esopt_jax.core.views import Factored, Shared
from esopt_jax.models.load import Model
from esopt_jax.models.sharding import MEMBER
from esopt_jax.rollouts.bound import product_seconds
from esopt_jax.rollouts.chat import Chat
from esopt_jax.rollouts.clock import Clock
from esopt_jax.rollouts.driver import Limits, Pool, play
from esopt_jax.rollouts.engine import Engine, by_member
from esopt_jax.rollouts.keys import environment_seeds
from esopt_jax.rollouts.policy import DevicePolicy, by_group
from esopt_jax.rollouts.processes import count, of_all, share
from esopt_jax.rollouts.sampler import Sampling
from esopt_jax.rollouts.seats import Episode
from esopt_jax.types import Environment, Master, Task, Trajectory, View

Case = tuple[int, Task]
"""A task with its index in the split, which names it in keys."""

BASE = -1
"""Member number of the unperturbed model."""

IMPATIENT = 0.5
"""Share of the rows in play that must be ready before they begin, where they do not wait for all: a prompt is read on
every row of the program, whether it begins or not."""


@dataclass(frozen=True)
class Stage:
    """What does not change between rollouts: device programs, environment, chat, host threads and limits; and a clock.

    `members_per_pass` are those of this process, `slots` the rows of each (0: one an episode), `patience` the driver's.
    `products(view, shape)` times the matrix products of a step alone; None where devices share the work.
    `in_turn` says whether a member may take the place of one that has played while others still do; that takes room for
    its copy beside theirs, which only factors have. `views(seed, generation, members, master, sigma)` makes their view.
    """

    engine: Engine
    environment: Environment
    chat: Chat
    pool: Pool
    limits: Limits
    episodes_per_case: int
    members_per_pass: int
    slots: int
    in_turn: bool
    patience: float
    views: Callable[..., View]
    products: Callable[..., float] | None = None
    clock: Clock = field(default_factory=Clock)

    def passes(self, members: Sequence[int]) -> list[Sequence[int]]:
        """The members that are played after each other in one call of the driver: all, or as many as are held."""
        size = len(members) if self.in_turn else self.members_per_pass
        return [members[first : first + size] for first in range(0, len(members), size or 1)]


def make_stage(
    engine: Engine,
    model: Model,
    environment: Environment,
    chat: Chat,
    pool: Pool,
    *,
    rollout: RolloutConfig,
    es: ESConfig,
    clock: Clock | None = None,
) -> Stage:
    """The stage of a config. `es.members_per_pass` counts over the whole mesh, rounded up to fill it."""
    members, processes = es.members_per_pass or es.population_size, count()
    held = _round_up(members, engine.shares * processes) // processes
    return Stage(
        engine=engine,
        environment=environment,
        chat=chat,
        pool=pool,
        limits=Limits(max_turns=rollout.max_turns, max_prompt_tokens=rollout.max_prompt_tokens),
        episodes_per_case=rollout.episodes_per_case,
        members_per_pass=held,
        slots=rollout.slots,
        in_turn=engine.mesh is None and (es.plan == "low_rank" or held == engine.shares),
        patience=IMPATIENT if rollout.segment else 1.0,
        views=_make_views(engine, model, es),
        products=partial(product_seconds, specs=model.specs, dtype=engine.dtype)
        if engine.mesh is None and engine.groups == (None,)
        else None,
        clock=Clock() if clock is None else clock,
    )


def rollout_population(
    stage: Stage,
    master: Master,
    cases: Sequence[Case],
    *,
    seed: int,
    generation: int,
    sigma: float,
    members: Sequence[int],
    sampling: Sampling,
) -> list[list[Trajectory]]:
    """Let every member play every case; several processes share the members, and each gets the episodes of all.

    Args:
        stage: everything fixed.
        master: the weights; only read.
        cases: what all members play, `episodes_per_case` times each.
        seed: of the run, for noise, sampling and environments.
        generation: 0-based.
        sigma: standard deviation of the perturbation.
        members: indices in the population.
        sampling: numbers and flags.

    Returns:
        `[len(members)][len(cases) * episodes_per_case]`, the repeats of a case side by side.

    Raises:
        StoppedError: another process failed, or is gone.
    """
    found: list[list[Trajectory]] = []
    size, engine, own = stage.members_per_pass, stage.engine, share(members)
    masters = engine.spread(master)
    width = len(cases) * stage.episodes_per_case

    def view(group: int, ids: np.ndarray) -> View:
        drawn = (np.uint32(seed), np.uint32(generation), by_member(ids, engine.mesh), masters[group])
        return stage.views(*drawn, np.float32(sigma))

    for playing in stage.passes(own):
        seated = list(playing[:size]) + list(playing[-1:]) * (size - len(playing))
        with stage.clock("perturb"):
            views = jax.block_until_ready(engine.each(view, by_group(np.array(seated, np.int32), len(engine.groups))))
        shape = (size, min(stage.slots or width, width))
        if stage.products is not None and stage.clock.product_s is None:
            stage.clock.product_s = stage.products(views[0], shape)
        plays = [
            seeded(episodes_of(member, cases, stage.episodes_per_case), stage, seed, generation) for member in playing
        ]
        lanes = [list(chain.from_iterable(plays[lane::size])) for lane in range(size)]
        played = _play(
            stage,
            views,
            lanes,
            shape,
            sampling=sampling,
            seed=seed,
            generation=generation,
            batched=True,
            make=view,
        )
        of_lane = [[lane[i : i + width] for i in range(0, len(lane), width)] for lane in played]
        found += [of_lane[i % size][i // size] for i in range(len(playing))]
    episodes = of_all(list(chain.from_iterable(found)))
    return [episodes[i * width : (i + 1) * width] for i in range(len(members))]


def rollout_model(
    stage: Stage,
    view: View,
    cases: Sequence[Case],
    *,
    seed: int,
    sampling: Sampling,
    repeats: int = 1,
    rows: int = 0,
    generation: int = 0,
    member: int = BASE,
) -> list[Trajectory]:
    """Let one model play every case `repeats` times; several processes share the episodes, and each gets all.

    Args:
        stage: everything fixed.
        view: weights without member axes, such as `core.master.base_view`.
        cases: what it plays.
        seed: of the evaluation, for sampling and environments.
        sampling: numbers and flags.
        repeats: episodes per case.
        rows: episodes at once, over all processes; 0 for all.
        generation: folded into keys and recorded; evaluations leave it at 0, so that all runs are judged alike.
        member: recorded.

    Returns:
        `[len(cases) * repeats]`, the repeats of a case side by side.
    """
    own = share(episodes_of(member, cases, repeats))
    views = stage.engine.spread(view)
    shares, episodes = stage.engine.shares, len(cases) * repeats
    each = -(-min(rows or episodes, episodes) // (shares * count()))
    played = _play(
        stage,
        views,
        [seeded(own, stage, seed, generation)],
        (shares, each),
        sampling=sampling,
        seed=seed,
        generation=generation,
        batched=False,
    )
    return of_all(played[0])


def episodes_of(member: int, cases: Sequence[Case], repeats: int) -> list[Episode]:
    """What a member plays, the repeats of a case side by side; environments have no seed yet."""
    return [
        Episode(member=member, case=index, episode=repeat, task=task, seed=0)
        for index, task in cases
        for repeat in range(repeats)
    ]


def seeded(plays: Sequence[Episode], stage: Stage, seed: int, generation: int) -> list[Episode]:
    """The same episodes with the seeds of their environments."""
    case, episode, member = np.array([(p.case, p.episode, p.member) for p in plays], np.int32).reshape(-1, 3).T
    common = stage.engine.common_random_numbers
    seeds = environment_seeds(seed, generation, case, episode, member, common_random_numbers=common)
    return [Episode(p.member, p.case, p.episode, p.task, s) for p, s in zip(plays, seeds, strict=True)]


def _play(
    stage: Stage, views: list[View], lanes: Sequence[Sequence[Episode]], shape: tuple[int, int], **kwargs: Any
) -> list[list[Trajectory]]:
    """Play lanes of episodes on a device batch of `shape`."""
    policy = DevicePolicy(stage.engine, views, shape, clock=stage.clock, **kwargs)
    return play(
        policy,
        stage.environment,
        lanes,
        width=shape[0] * shape[1] // len(lanes),
        chat=stage.chat,
        pool=stage.pool,
        limits=stage.limits,
        clock=stage.clock,
        patience=stage.patience,
        generation=kwargs["generation"],
    )


def _make_views(engine: Engine, model: Model, es: ESConfig) -> Callable[..., View]:
    """The views of a pass; on a mesh, each device makes those of its own members."""

    def views(seed: Any, generation: Any, members: Any, master: Master, sigma: Any) -> View:
        return perturb_population(
            seed,
            generation,
            members,
            master,
            specs=model.specs,
            sigma=sigma,
            plan=es.plan,
            rank=es.rank,
            dtype=engine.dtype,
            antithetic=es.antithetic,
            multipliers=es.sigma_multipliers,
            scope=es.scope,
        )

    if engine.mesh is None:
        return lambda seed, generation, members, *rest: views(seed, generation, jnp.asarray(members), *rest)

    rows, whole = PartitionSpec(MEMBER), PartitionSpec()
    factored = Factored(whole, rows, rows)
    tuned = {
        s.path: factored if es.plan == "low_rank" and s.is_matrix else rows for s in tuned_specs(model.specs, es.scope)
    }
    placed = {s.path: tuned.get(s.path, Shared(whole)) for s in model.specs}
    ins = (whole, whole, rows, whole, whole)
    return jax.jit(jax.shard_map(views, mesh=engine.mesh, in_specs=ins, out_specs=placed))


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
