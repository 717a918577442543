"""The device programs of GRPO: log-probabilities of a batch, gradients added up over batches, and AdamW.

Weights and moments are float32, and so are gradients; the forward pass runs in the compute type of the run. Only the
leaves in the run's scope have gradients and moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from esopt_jax.config import Config, GRPOConfig
from esopt_jax.core.master import view_dtype
from esopt_jax.core.scope import tuned_specs
from esopt_jax.models.load import Model
from esopt_jax.models.lora import assembled
from esopt_jax.models.registry import score
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.training.baselines.grpo_batch import Batch
from esopt_jax.training.baselines.grpo_loss import TokenLogProbs, reply_counts, token_log_probs, token_losses
from esopt_jax.types import Master


class Sums(NamedTuple):
    """Scalars, float32, weighed as the loss is: the loss, the divergence from the start, the share of clipped tokens.

    `off` is the largest distance of a ratio from 1.
    """

    loss: Any
    divergence: Any
    clipped: Any
    off: Any


@dataclass(frozen=True)
class Learner:
    """Compiled functions of a run.

    Attributes:
        tuned: paths of the leaves that learn.
        init: `init(weights) -> moments`.
        log_probs: `log_probs(weights, batch) -> TokenLogProbs`, `[B, T - 1]`, of the tokens after the first.
        gradient: `gradient(weights, gradients, batch, old, reference) -> (gradients, Sums)`, added to those given,
            which are donated. `old` None stands for the weights themselves.
        apply: `apply(weights, moments, gradients, lr) -> (weights, moments, norm)`; the first two are donated.
    """

    tuned: frozenset[str]
    init: Callable[..., Any]
    log_probs: Callable[..., TokenLogProbs]
    gradient: Callable[..., tuple[Master, Sums]]
    apply: Callable[..., tuple[Master, Any, jax.Array]]


def make_learner(config: Config, model: Model) -> Learner:
    """The programs of `config` for `model`, whose weights are not read."""
    grpo = config.grpo
    tuned = frozenset(spec.path for spec in tuned_specs(model.specs, config.es.scope))
    optimizer = adam(grpo)
    read = partial(_log_probs, config=config, model=model)
    dtypes = {spec.path: view_dtype(config.model.dtype, spec.keep_float32) for spec in model.specs}

    def log_probs(weights: Master, batch: Batch) -> TokenLogProbs:
        view = assembled({path: leaf.astype(dtypes[path]) for path, leaf in weights.items()})
        return read(view, batch)

    def gradient(
        weights: Master, gradients: Master, batch: Batch, old: jax.Array | None, reference: jax.Array | None
    ) -> tuple[Master, Sums]:
        def total(learning: Master) -> tuple[jax.Array, Sums]:
            new = log_probs({**weights, **learning}, batch)
            before = jax.lax.stop_gradient(new.drawn) if old is None else old
            each = token_losses(
                new,
                before,
                reference,
                jnp.asarray(batch.advantages)[:, None],
                clip_low=grpo.clip_low,
                clip_high=grpo.clip_high,
                beta=grpo.beta,
            )
            mine = batch.weights[:, 1:]
            loss, divergence, clipped = (jnp.sum(jnp.where(mine > 0, mine * part, 0.0)) for part in each)
            off = jnp.max(jnp.where(mine > 0, jnp.abs(jnp.exp(new.drawn - before) - 1), 0.0))
            return loss, Sums(loss, divergence, clipped, off)

        found, sums = jax.grad(total, has_aux=True)({path: weights[path] for path in sorted(tuned)})
        return {path: gradients[path] + found[path] for path in found}, sums

    def apply(weights: Master, moments: Any, gradients: Master, lr: jax.Array) -> tuple[Master, Any, jax.Array]:
        norm = optax.tree.norm(gradients)
        if grpo.max_norm:
            scale = jnp.minimum(1.0, grpo.max_norm / jnp.maximum(norm, 1e-30))
            gradients = {path: leaf * scale for path, leaf in gradients.items()}
        learning = {path: weights[path] for path in gradients}
        steps, moments = optimizer.update(gradients, moments, learning)
        moved = {path: learning[path] - lr * steps[path] for path in learning}
        return {**weights, **moved}, moments, norm

    return Learner(
        tuned=tuned,
        init=jax.jit(lambda weights: optimizer.init({path: weights[path] for path in sorted(tuned)})),
        log_probs=jax.jit(log_probs),
        gradient=jax.jit(gradient, donate_argnums=1),
        apply=jax.jit(apply, donate_argnums=(0, 1)),
    )


def adam(grpo: GRPOConfig) -> optax.GradientTransformation:
    """AdamW before its learning rate, which changes from step to step; its steps are to be subtracted."""
    return optax.chain(
        optax.scale_by_adam(b1=grpo.beta1, b2=grpo.beta2, eps=grpo.eps),
        optax.add_decayed_weights(grpo.weight_decay),
    )


def _log_probs(view: Any, batch: Batch, *, config: Config, model: Model) -> TokenLogProbs:
    sampling, tokens = make_sampling(config.rollout), jnp.asarray(batch.tokens)
    logits = score(view, tokens, jnp.asarray(batch.lengths), arch=model.arch, remat=config.grpo.remat)[:, :-1]
    counts = None
    if sampling.flags.penalties and config.grpo.log_probs == "sampled":
        positions = jnp.arange(1, tokens.shape[1])
        count = partial(reply_counts, positions=positions, size=logits.shape[-1])
        counts = jax.vmap(count)(tokens, jnp.asarray(batch.starts)[:, 1:])
    return token_log_probs(
        logits,
        tokens[:, 1:],
        sampling,
        vocab_limit=model.vocab_limit,
        counts=counts,
        form=config.grpo.log_probs,
    )
