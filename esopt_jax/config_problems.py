"""What the values of a config may be: every problem with its fix."""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

from esopt_jax.config import Config


def checker(config: Any, found: list[str]) -> Callable[[bool, str, str], None]:
    """`check(ok, key, allowed)`, which adds to `found` what is wrong with a value of `config` unless it is `ok`.

    Example:
        >>> from esopt_jax.config import Config
        >>> found = []
        >>> checker(Config(), found)(False, "es.seed", "another")
        >>> found
        ['es.seed is 0; it must be another']
    """

    def check(ok: bool, key: str, allowed: str) -> None:
        if not ok:
            value = functools.reduce(getattr, key.split("."), config)
            found.append(f"{key} is {value!r}; it must be {allowed}")

    return check


def problems(config: Config) -> list[str]:
    """Everything that is wrong with the values of `config`, each with the fix; empty when it can run."""
    found: list[str] = []
    check = checker(config, found)
    es, rollout, ev = config.es, config.rollout, config.eval
    check(bool(config.preset), "preset", "a name, since run folders are called after it")
    for section in ("es", "grpo", "randopt", "rollout", "eval", "train"):
        for name, value in vars(getattr(config, section)).items():
            if isinstance(value, int) and name != "seed":
                check(value < 2**31, f"{section}.{name}", "below 2^31")
    check(0 <= es.seed < 2**32, "es.seed", "in 0 .. 2^32-1")
    check(0 <= ev.seed < 2**32, "eval.seed", "in 0 .. 2^32-1")
    check(es.population_size >= 2, "es.population_size", "at least 2, since fitness is compared between members")
    check(es.generations >= 0, "es.generations", "0 or more")
    for name in ("sigma", "alpha"):
        start, end = getattr(es, name), getattr(es, f"{name}_end")
        check(_at_least_0(start), f"es.{name}", "a finite number, 0 or more")
        check(end is None or _at_least_0(end), f"es.{name}_end", "a finite number, 0 or more, or null")
        check(getattr(es, f"{name}_warmup") >= 0, f"es.{name}_warmup", "0 or more generations")
    if _at_least_0(es.sigma) and _at_least_0(es.alpha):
        check(es.sigma > 0 or es.alpha == 0, "es.sigma", "above 0 while es.alpha is not 0")
    alpha_end = es.alpha if es.alpha_end is None else es.alpha_end
    if es.sigma_end == 0 and (alpha_end != 0 or es.alpha_schedule == "constant") and es.alpha != 0:
        found.append(
            "es.sigma_end is 0 while alpha is not: the last update would be noise; end sigma above 0, or alpha at 0 too"
        )
    check(0 <= es.anchor <= 1, "es.anchor", "in 0 (none) .. 1")
    if es.anchor and es.master == "bfloat16":
        found.append("es.anchor needs es.master float32 or split: bfloat16 would round so small a pull away")
    check(es.rank >= 1, "es.rank", "at least 1")
    check(
        0 <= es.members_per_pass <= max(es.population_size, 0),
        "es.members_per_pass",
        "0 (all) or 1 .. es.population_size",
    )
    if es.antithetic:
        check(es.population_size % 2 == 0, "es.population_size", "even when es.antithetic is true")
    check(_is_scope(es.scope), "es.scope", "full, all_linear, pattern:REGEX, lora:RANK or lora:RANK:REGEX")
    for group, value in es.sigma_multipliers.items():
        if group not in ("matrix", "embedding", "norm", "gate", "conv", "adapter") or not _at_least_0(value):
            found.append(
                f"es.sigma_multipliers.{group} is {value!r}; groups are adapter, conv, embedding, gate, matrix, norm, "
                "values 0 or more"
            )
    for name in ("cases", "episodes_per_case", "max_turns", "max_new_tokens", "max_prompt_tokens", "workers"):
        check(getattr(rollout, name) >= 1, f"rollout.{name}", "at least 1")
    check(_at_least_0(rollout.temperature), "rollout.temperature", "a finite number, 0 (greedy) or more")
    check(rollout.top_k >= 0, "rollout.top_k", "0 (off) or more")
    check(0 < rollout.top_p <= 1, "rollout.top_p", "above 0 and at most 1 (off)")
    check(0 <= rollout.min_p < 1, "rollout.min_p", "0 (off) or more and below 1")
    check(math.isfinite(rollout.presence_penalty), "rollout.presence_penalty", "a finite number")
    check(math.isfinite(rollout.frequency_penalty), "rollout.frequency_penalty", "a finite number")
    check(
        rollout.repetition_penalty > 0 and math.isfinite(rollout.repetition_penalty),
        "rollout.repetition_penalty",
        "above 0",
    )
    check(rollout.slots >= 0, "rollout.slots", "0 (all episodes of a member) or more")
    check(rollout.segment >= 0, "rollout.segment", "0 (whole replies) or more tokens")
    check(rollout.step_timeout_s > 0, "rollout.step_timeout_s", "above 0 seconds")
    check(rollout.step_retries >= 0, "rollout.step_retries", "0 or more")
    check(ev.every >= 0, "eval.every", "0 (before and after only) or more")
    check(ev.repeats >= 1, "eval.repeats", "at least 1")
    check(ev.episodes >= 1, "eval.episodes", "at least 1")
    check(ev.rows >= 0, "eval.rows", "0 (all at once) or more")
    check(
        min(config.train.mesh) >= 1,
        "train.mesh",
        "[groups that play members, devices that hold a model], each at least 1",
    )
    check(bool(config.model.path.strip()), "model.path", "a folder, a file, ORG/NAME or builtin:NAME")
    check(config.train.checkpoint_every >= 0, "train.checkpoint_every", "0 (never) or more generations")
    check(0 <= config.log.drift_every < 2**31, "log.drift_every", "0 (never) or more generations")
    check(config.train.keep_checkpoints >= 1, "train.keep_checkpoints", "at least 1")
    check(config.randopt.voters >= 0, "randopt.voters", "0 (no vote) or more")
    if config.method == "randopt":
        check(es.control == "zero_update", "es.control", "zero_update for method randopt, whose weights never move")
        check(es.generations >= 1, "es.generations", "at least 1 for method randopt")
    _check_grpo(config, check)
    return found


def _check_grpo(config: Config, check: Callable[[bool, str, str], None]) -> None:
    grpo = config.grpo
    check(grpo.group_size >= 2, "grpo.group_size", "at least 2, since episodes are compared with each other")
    for name in ("batches", "micro_batch"):
        check(getattr(grpo, name) >= 1, f"grpo.{name}", "at least 1")
    check(0 <= grpo.clip_low < 1, "grpo.clip_low", "0 or more and below 1")
    for name in ("clip_high", "beta", "lr", "weight_decay", "max_norm"):
        check(_at_least_0(getattr(grpo, name)), f"grpo.{name}", "a finite number, 0 or more")
    for name in ("beta1", "beta2"):
        check(0 <= getattr(grpo, name) < 1, f"grpo.{name}", "0 or more and below 1")
    check(grpo.warmup >= 0, "grpo.warmup", "0 or more steps")
    check(grpo.eps > 0 and math.isfinite(grpo.eps), "grpo.eps", "above 0")
    if config.method == "grpo":
        check(config.rollout.temperature > 0, "rollout.temperature", "above 0 for method grpo, which learns from luck")
        check(config.es.master == "float32", "es.master", "float32 for method grpo")
        check(config.es.anchor == 0, "es.anchor", "0 for method grpo, which has grpo.beta")
        check(config.train.mesh == (1, 1), "train.mesh", "[1, 1] for method grpo, which runs on one device")


def _is_scope(text: str) -> bool:
    kind, colon, expression = text.partition(":")
    if kind == "lora":
        rank, colon, expression = expression.partition(":")
        if not re.fullmatch("[1-9][0-9]{0,3}", rank):
            return False
    elif kind != "pattern":
        return text in ("full", "all_linear")
    try:
        with warnings.catch_warnings(action="error"):  # Python warns of what will be read otherwise one day
            re.compile(expression)
    except (re.error, RecursionError, OverflowError, Warning):
        return False
    return kind == "lora" or bool(colon)


def _at_least_0(x: float) -> bool:
    return math.isfinite(x) and x >= 0
