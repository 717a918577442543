"""Pretraining of the tiny base: a loss against exact distributions, read through noisy weights, and its loop.

Two things beside the cross-entropy make the base a good start for evolution strategies:

- the loss is taken at weights with Gaussian noise of the size that members of a population will have, so that the skill
  lies in a flat region (Hochreiter & Schmidhuber, "Flat Minima", 1997) and a perturbed member can still play;
- probability outside a target's support is charged a second time. A player that is right on all but 2 % of each token
  loses one game in three.
"""

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from crowd import Lesson, draw_boards, grids, make_lesson
from flax import struct
from jax import lax
from jax.flatten_util import ravel_pytree

from esopt_jax.models.architecture import Architecture
from esopt_jax.models.init import init_params
from esopt_jax.models.registry import decode_step, init_cache, leaf_specs, prefill
from esopt_jax.types import Params

BOARDS, LOOKS, GUESSES = 64, 2, 1
"""Boards a step, and replies to each. All replies to a board share the reading of its prompt."""

STEPS = 3000
P_CAREFUL = 0.3
BLANKS, WRONG_SHARE, VERDICT_SHARE = 7, 0.1, 0.15
LEARNING_RATE, WARMUP, CLIP = 3e-3, 100, 1.0
NOISE, NOISE_FROM, NOISE_FULL = 0.02, 0.1, 0.4
FIRST_WEIGHT, OUTSIDE_WEIGHT = 0.1, 2.0
HELD_OUT_BOARDS, HELD_OUT_BLANKS = 512, 6


@struct.dataclass
class Scores:
    """Scalars of a batch, in nats.

    `first` is the divergence of the first token; `careful` that of the other tokens of a careful reply, summed;
    `mistake` the mean probability that a careful reply leaves its targets' support.
    """

    first: jax.Array
    careful: jax.Array
    mistake: jax.Array


class Progress(NamedTuple):
    """A line of the log: the step, its loss, and the held-out scores of plain and of noisy weights."""

    step: int
    loss: float
    plain: Scores
    noisy: Scores
    seconds: float


@partial(jax.jit, static_argnames="arch")
def draw_params(key: jax.Array, arch: Architecture) -> Params:
    """Fresh weights: variance-preserving matrices, half as large where they write to the stream, and slow gates.

    The package's own initialiser is that of the published models (std 0.02), too small for a width of 48.
    """
    specs = leaf_specs(arch)
    params = init_params(key, specs, std=1.0)
    for index, spec in enumerate(specs):
        scale = {"embedding": 0.25, "conv": 0.5, "matrix": spec.noise_form[0] ** -0.5}.get(spec.group, 1.0)
        writes = spec.path.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
        params[spec.path] *= scale * (0.5 if writes else 1.0)
        uniform = partial(jax.random.uniform, jax.random.fold_in(key, index), spec.shape)
        if spec.path.endswith("A_log"):
            params[spec.path] = jnp.log(uniform(minval=0.5, maxval=2.0))
        if spec.path.endswith("dt_bias"):  # softplus of it is log-uniform in 0.01 .. 0.3
            params[spec.path] = jnp.log(jnp.expm1(jnp.exp(uniform(minval=math.log(0.01), maxval=math.log(0.3)))))
    return params


def losses(params: Params, lesson: Lesson, *, arch: Architecture) -> tuple[jax.Array, Scores]:
    """The training loss of a lesson and its scores."""
    length, count = lesson.replies.shape
    boards, width = lesson.prompts.shape
    cache = init_cache(arch, boards, width + length)
    first, cache = prefill(params, cache, lesson.prompts, lesson.lengths, arch=arch)
    cache = jax.tree.map(lambda x: jnp.repeat(x, count // boards, axis=0), cache)
    live = jnp.ones(count, bool)

    def read(cache: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
        logits, cache = decode_step(params, cache, tokens, live, arch=arch)
        return cache, logits

    _, logits = lax.scan(read, cache, lesson.replies, unroll=True)
    log_inside = jax.nn.logsumexp(jnp.where(lesson.targets > 0, jax.nn.log_softmax(logits), -jnp.inf), axis=-1)
    divergence = _divergence(lesson.targets, logits)  # [L, N]
    opening = _divergence(lesson.first, first).mean()
    loss = FIRST_WEIGHT * opening + (divergence - OUTSIDE_WEIGHT * log_inside).sum(0).mean()
    careful = lesson.careful / lesson.careful.sum()
    scores = Scores(
        first=opening,
        careful=divergence.sum(0) @ careful,
        mistake=-jnp.expm1(log_inside.sum(0)) @ careful,
    )
    return loss, scores


def _divergence(target: jax.Array, logits: jax.Array) -> jax.Array:
    """KL divergence from `target` over the last axis, in nats."""
    return (jax.scipy.special.xlogy(target, target) - target * jax.nn.log_softmax(logits)).sum(-1)


def pretrain(seed: int, arch: Architecture, *, steps: int, log_every: int = 100) -> Iterator[tuple[Progress, Params]]:
    """Train for `steps` steps; yields the progress and the weights every `log_every` steps and at the end.

    The result depends on the arguments alone, up to the floating point of the machine.
    """
    root = jax.random.key(seed)
    # One long vector: the optimiser and the noise do not care where a leaf ends, and compile to one loop each.
    weights, unravel = ravel_pytree(draw_params(jax.random.fold_in(root, 0), arch))
    rate = optax.warmup_cosine_decay_schedule(0.0, LEARNING_RATE, min(WARMUP, steps // 2), steps, 0.01 * LEARNING_RATE)
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(rate, b2=0.99, weight_decay=0.0))
    state = optimizer.init(weights)
    solutions = grids("train")

    def noisy_loss(weights: jax.Array, step: jax.Array) -> jax.Array:
        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(root, 1), step), 3)
        boards = draw_boards(
            keys[0], solutions, count=BOARDS, blanks=BLANKS, wrong_share=WRONG_SHARE, verdict_share=VERDICT_SHARE
        )
        lesson = make_lesson(keys[1], boards, looks=LOOKS, guesses=GUESSES, p_careful=P_CAREFUL)
        sigma = NOISE * jnp.clip((step / steps - NOISE_FROM) / (NOISE_FULL - NOISE_FROM), 0.0, 1.0)
        return losses(unravel(weights + sigma * jax.random.normal(keys[2], weights.shape)), lesson, arch=arch)[0]

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: jax.Array, state: Any, step: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
        loss, gradient = jax.value_and_grad(noisy_loss)(weights, step)
        change, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state, loss

    held_out = held_out_lesson()
    measure = jax.jit(lambda weights: losses(unravel(weights), held_out, arch=arch)[1])
    noise = NOISE * jax.random.normal(jax.random.fold_in(root, 2), weights.shape)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        weights, state, loss = update(weights, state, step - 1)
        if step % log_every == 0 or step == steps:
            scores = jax.tree.map(float, (measure(weights), measure(weights + noise)))
            yield Progress(step, float(loss), *scores, time.perf_counter() - start), unravel(weights)


@jax.jit
def held_out_lesson() -> Lesson:
    """The same careful replies to held-out boards, right ones, for every run."""
    key = jax.random.key(0)
    boards = draw_boards(
        key, grids("eval"), count=HELD_OUT_BOARDS, blanks=HELD_OUT_BLANKS, wrong_share=0.0, verdict_share=VERDICT_SHARE
    )
    return make_lesson(key, boards, looks=1, guesses=0, p_careful=P_CAREFUL)
