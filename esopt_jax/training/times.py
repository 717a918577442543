"""Where the time of a generation's rollouts went, for `metrics.jsonl`."""

from __future__ import annotations

from esopt_jax.rollouts.clock import Clock


def time_metrics(clock: Clock, rollout_s: float) -> dict[str, float | None]:
    """Seconds by phase, which add up to `rollout_s`, and what rows and products had of them.

    Args:
        clock: was restarted when the rollouts began.
        rollout_s: seconds that they took, compiling left out.

    Example:
        >>> clock = Clock(seconds={"prefill": 1.0, "decode": 2.0}, product_s=0.25, steps=4, row_steps=32, written=24)
        >>> time_metrics(clock, 4.0)  # doctest: +NORMALIZE_WHITESPACE
        {'time/perturb_s': 0.0, 'time/prefill_s': 1.0, 'time/decode_s': 2.0, 'time/environment_s': 0.0,
         'time/host_s': 1.0, 'time/idle_share': 0.25, 'time/product_share': 0.5, 'tokens_read': 0}
    """
    phases = {name: float(clock.seconds.get(name, 0.0)) for name in ("perturb", "prefill", "decode", "environment")}
    return {
        **{f"time/{name}_s": seconds for name, seconds in phases.items()},
        "time/host_s": max(0.0, rollout_s - sum(phases.values())),
        "time/idle_share": clock.idle_share,
        "time/product_share": clock.product_share,
        "tokens_read": clock.read,
    }
