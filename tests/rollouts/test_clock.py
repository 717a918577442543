"""Where the time went: closed forms, and what phases leave out."""

import numpy as np
import pytest

from esopt_jax.rollouts.clock import Clock


def test_rows_that_ended_or_have_no_episode_are_idle_until_the_longest_reply_is_written():
    clock = Clock()
    clock.wrote(np.array([3, 1, 0]))
    clock.wrote(np.array([0, 2, 2]))
    assert (clock.steps, clock.row_steps, clock.written) == (5, 15, 8)
    assert clock.idle_share == pytest.approx(7 / 15)
    clock.restart()
    assert clock.idle_share == 0 and clock.steps == clock.row_steps == clock.written == 0


def test_the_share_of_products_is_that_of_all_steps_in_the_time_of_decoding():
    clock = Clock(product_s=0.5, seconds={"decode": 4.0, "prefill": 9.0}, steps=6)
    assert clock.product_share == 0.75
    assert Clock(seconds={"decode": 4.0}, steps=6).product_share is None
    assert Clock(product_s=0.5, steps=6).product_share is None


def test_compiling_is_of_no_phase_and_phases_add_up(monkeypatch):
    now = compiled = 0.0
    monkeypatch.setattr("esopt_jax.rollouts.clock.time.perf_counter", lambda: now)
    clock = Clock(compiled=lambda: compiled)
    for rest in (2.0, 3.0):
        with clock("prefill"):
            now += 10.0
            compiled += 10.0 - rest
    with clock("decode"):
        now += 1.0
        compiled += 7.0  # by several threads at once
    assert clock.seconds == {"prefill": 5.0, "decode": 0.0}


def test_a_phase_that_fails_is_counted():
    clock = Clock()
    with pytest.raises(ValueError, match="broken"), clock("decode"):
        raise ValueError("broken")
    assert clock.seconds["decode"] >= 0
