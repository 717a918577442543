"""One generation of this package on conversations, and the seconds of its parts."""

import dataclasses
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import dialogue
import jax
import jax.numpy as jnp
import sides

from esopt_jax.config import ESConfig, RolloutConfig
from esopt_jax.core.digest import digest
from esopt_jax.core.master import master_leaf
from esopt_jax.core.shaping import shape_fitness
from esopt_jax.core.update import make_update
from esopt_jax.models.load import Model
from esopt_jax.rollouts.population import rollout_population
from esopt_jax.rollouts.sampler import make_sampling


class Phases(sides.Peak):
    """Reports, in the place of memory, the seconds of each part of a job."""

    def begin(self) -> None:
        """From here on."""
        self.seconds: dict[str, float] = {}

    def end(self) -> Any:
        """Seconds by part."""
        return self.seconds

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count what is done inside as `part`."""
        began = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began


class Generation:
    """Perturb, play, shape, update; the weights after a call are those before the next.

    Playing is reading prompts, writing replies and, on the host, everything between. A call stands alone in its phases.
    """

    def __init__(
        self,
        model: Model,
        environment: dialogue.Dialogue,
        *,
        cases: int,
        rollout: RolloutConfig,
        es: ESConfig,
        dtype: Any,
        phases: Phases,
        scope: ExitStack,
        mesh: jax.sharding.Mesh | None = None,
    ):
        """Nothing is compiled yet; `scope` ends the threads of the environment."""
        stage = dialogue.staged(model, environment, rollout=rollout, es=es, dtype=dtype, mesh=mesh)
        stage = scope.enter_context(stage)
        engine = stage.engine
        engine = dataclasses.replace(
            engine, start=self._timed("read", engine.start), write=self._timed("write", engine.write)
        )
        self._stage = dataclasses.replace(stage, engine=engine, views=self._timed("perturb", stage.views))
        self._cases = list(enumerate(environment.tasks("train")[:cases]))
        self._es, self._phases, self._count = es, phases, 0
        self._sampling = make_sampling(rollout)
        kept = "split" if dtype == jnp.bfloat16 else "float32"
        self._master = {s.path: master_leaf(model.params[s.path], spec=s, format=kept) for s in model.specs}
        size = {"population_size": es.population_size, "plan": es.plan, "rank": es.rank}
        self._update = make_update(model.specs, **size)

    def __call__(self) -> None:
        """The next one."""
        es, index = self._es, self._count
        self._count += 1
        with self._phases.of("host"):
            played = rollout_population(
                self._stage,
                self._master,
                self._cases,
                seed=es.seed,
                generation=index,
                sigma=es.sigma,
                members=range(es.population_size),
                sampling=self._sampling,
            )
        self._phases.seconds["host"] -= sum(self._phases.seconds[part] for part in ("perturb", "read", "write"))
        rewards = [sum(episode.reward for episode in member) / len(member) for member in played]
        weights = jnp.asarray(shape_fitness(rewards, method="zscore").weights, jnp.float32)
        with self._phases.of("update"):
            self._master, _ = self._update(es.seed, index, self._master, weights, es.alpha)
            jax.block_until_ready(self._master)
        with self._phases.of("digest"):
            digest(self._master)

    def _timed(self, part: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            with self._phases.of(part):
                return jax.block_until_ready(function(*args))

        return call
