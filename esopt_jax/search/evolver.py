"""ES on the weights of the model that writes the programs.

The base weights are never written to evaluate a member: each is a view of them. What moves them follows from the
programs alone, so a search that goes on makes its updates again, and a digest says whether they came out the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp

from esopt_jax.core.digest import digest
from esopt_jax.core.master import base_view, master_leaf
from esopt_jax.core.perturb import perturb_population
from esopt_jax.core.schedules import schedule
from esopt_jax.core.shaping import shape_fitness
from esopt_jax.core.update import Update, make_update
from esopt_jax.models.load import Model, open_model
from esopt_jax.models.save import save_params
from esopt_jax.search.config import WriterConfig
from esopt_jax.search.learning import Updated
from esopt_jax.search.model_writer import Desk, MembersWriter, ModelWriter, make_desk
from esopt_jax.search.settings import EvolveConfig, SearchConfig, asked_for, generations, updates_in
from esopt_jax.search.writer import Reply, Request
from esopt_jax.types import Master, View


class ModelEvolver:
    """A model of ours; a `learning.Evolver`."""

    def __init__(self, model: Model, desk: Desk, search: SearchConfig, es: EvolveConfig, *, rows: int) -> None:
        """Begin with the weights of `model`; the unperturbed one writes `rows` answers at once."""
        self._desk, self._search, self._es, self._rows = desk, search, es, rows
        self._specs, self._dtype, self._model = model.specs, desk.engine.dtype, model
        self._master: Master = {  # a leaf at a time: the model may not be in memory
            spec.path: master_leaf(model.params[spec.path], spec=spec, format=es.master) for spec in model.specs
        }
        self._members = asked_for(search, "i1" if search.method == "sample" else "m1")
        self._update: Update = make_update(
            model.specs,
            population_size=self._members,
            plan=es.plan,
            rank=es.rank,
            antithetic=es.antithetic,
            scope=es.scope,
        )
        self._done = 0

    @property
    def master(self) -> Master:
        """The weights as they are."""
        return self._master

    @property
    def sigma(self) -> float:
        """Of the members that write next; those of a generation of the search share it."""
        es, total = self._es, generations(self._search)
        return schedule(es.sigma_schedule, es.sigma, es.sigma_end, self._done // updates_in(self._search), total)

    def save(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder, in place of one that is there."""
        save_params(folder, self._master, self._model, replace=True)

    def write(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply a request."""
        if all(request.member is None for request in requests):
            view = base_view(self._master, specs=self._specs, dtype=self._dtype)
            return ModelWriter(self._desk, view, rows=self._rows).write(requests)
        replies: dict[int, Reply] = {}
        held = self._es.members_per_pass or self._members
        for first in range(0, self._members, held):
            members = [min(member, self._members - 1) for member in range(first, first + held)]
            mine = [index for index, request in enumerate(requests) if request.member in members]
            if mine:
                writer = MembersWriter(self._desk, self._views(members), members, rows=1)
                replies |= zip(mine, writer.write([requests[index] for index in mine]), strict=True)
        return [replies[index] for index in range(len(requests))]

    def learn(self, rewards: Sequence[float]) -> Updated:
        """Move the weights by what the members of this update have earned."""
        es, sigma = self._es, self.sigma
        shaped = shape_fitness(rewards, method="zscore")
        norm = 0.0
        if not shaped.degenerate:
            weights = jnp.asarray(shaped.weights)
            self._master, stats = self._update(es.seed, self._done, self._master, weights, es.alpha)
            norm = float(stats.update_norm)
        self._done += 1
        coefficients = tuple(float(weight) for weight in shaped.weights)
        found = tuple(float(reward) for reward in rewards)
        return Updated(self._done - 1, sigma, es.alpha, found, coefficients, norm, digest(self._master))

    def _views(self, members: Sequence[int]) -> View:
        es = self._es
        return perturb_population(
            es.seed,
            self._done,
            jnp.asarray(members, jnp.int32),
            self._master,
            specs=self._specs,
            sigma=self.sigma,
            plan=es.plan,
            rank=es.rank,
            dtype=self._dtype,
            antithetic=es.antithetic,
            scope=es.scope,
        )


def load_evolver(config: WriterConfig, search: SearchConfig, es: EvolveConfig) -> ModelEvolver:
    """The evolver of a model by its path."""
    model = open_model(config.model)
    desk: Desk = make_desk(model, config)
    rows: int = config.rows or asked_for(search, "i1")
    return ModelEvolver(model, desk, search, es, rows=rows)
