"""How far a policy has come from where it started: its weights, and what it says where the base would speak.

    drift/distance                l2 distance of the weights from the start
    drift/distance/GROUP          of the leaves of a group (`LeafSpec.group`)
    drift/kl                      divergence from the base, in nats a token, on the probe set
    time/drift_s                  seconds of measuring both

The probe set is what the base itself says on the first held-out tasks. There the two distributions over the whole
vocabulary are compared at every token of its replies, before temperature and filters. Turns, invalid and repeated
actions and lengths are in the rows of every generation already.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from esopt_jax.core.master import master_leaf, master_value
from esopt_jax.core.scope import tuned_specs
from esopt_jax.models.load import Model
from esopt_jax.models.lora import assembled
from esopt_jax.models.registry import score
from esopt_jax.rollouts.population import rollout_model
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.baselines.grpo_batch import Batch, conversations, make_batches
from esopt_jax.training.evaluate import policy_view
from esopt_jax.training.ledger import Ledger
from esopt_jax.training.restore import base_model, base_policy
from esopt_jax.training.session import Session
from esopt_jax.types import Master, View

PROBES = 16
"""Held-out tasks, and conversations of the base on them, that the divergence is measured on."""


def report_drift(session: Session, master: Master, ledger: Ledger, updates: int) -> None:
    """Put a row about the weights after so many updates into the metrics, unless it is there."""
    if updates in ledger.drifted:
        return
    started = time.perf_counter()
    config = session.config
    base = base_model(config.model.path, config.es, config.train.mesh)
    row: dict[str, Any] = {"generation": updates, **distances(session, master, base)}
    if config.train.mesh == (1, 1):
        start = base_policy(base, config.es, config.model.dtype)
        if ledger.probes is None:
            ledger.probes = probe_set(session, start)
        row["drift/kl"] = divergence(session, policy_view(session, master), start, ledger.probes)
    ledger.write_metrics({**row, "time/drift_s": time.perf_counter() - started})
    ledger.drifted.add(updates)


def distances(session: Session, master: Master, base: Model) -> dict[str, float]:
    """Distance of the weights from the start, leaf by leaf, summed up by group; groups that are not tuned are at 0."""
    es, squares = session.config.es, dict[str, float]()
    for spec in tuned_specs(session.model.specs, es.scope):
        start = master_leaf(base.params[spec.path], spec=spec, format=es.master)
        moved = _squared_distance(master_value(master[spec.path]), master_value(start))
        squares[spec.group] = squares.get(spec.group, 0.0) + float(moved)
    found = {f"drift/distance/{group}": float(np.sqrt(squares[group])) for group in sorted(squares)}
    return {"drift/distance": float(np.sqrt(sum(squares.values()))), **found}


def probe_set(session: Session, start: View) -> Batch:
    """Conversations of the base on held-out tasks; the same in every run with this base and `eval.seed`."""
    config = session.config
    episodes = rollout_model(
        session.stage,
        start,
        session.held_out[:PROBES],
        seed=config.eval.seed,
        sampling=make_sampling(config.rollout),
        generation=0,
    )
    said = [conversations(episode, 1.0) for episode in episodes if episode.turns]
    rounds = max((len(own) for own in said), default=0)
    chosen = [own[i] for i in range(rounds) for own in said if i < len(own)][:PROBES]
    (batch,) = make_batches(
        chosen, size=PROBES, capacity=session.stage.engine.spec.capacity, average="token", idle=True
    )
    return batch


def divergence(session: Session, view: View, start: View, probes: Batch) -> float:
    """Kullback-Leibler divergence of a policy from the base, mean over the tokens of the probe set."""
    return float(_divergence(view, start, probes, session.model.arch, session.model.vocab_limit))


@partial(jax.jit, static_argnums=(3, 4))
def _divergence(view: View, start: View, probes: Batch, arch: Any, vocab_limit: int) -> jax.Array:
    def of_row(row: tuple[jax.Array, jax.Array]) -> jax.Array:  # one at a time: logits are large
        tokens, length = row[0][None], row[1][None]
        new, old = (
            jax.nn.log_softmax(score(assembled(v), tokens, length, arch=arch)[0, :-1, :vocab_limit])
            for v in (view, start)
        )
        return jnp.sum(jnp.exp(new) * (new - old), axis=-1)

    each = jax.lax.map(of_row, (jnp.asarray(probes.tokens), jnp.asarray(probes.lengths)))
    weights = jnp.asarray(probes.weights)[:, 1:]
    return jnp.maximum(jnp.sum(jnp.where(weights > 0, weights * each, 0.0)), 0.0)


@jax.jit
def _squared_distance(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum((a - b) ** 2)
