import subprocess
import sys
import textwrap
import threading
import time

import pytest

from esopt_jax.rollouts.workers import Fault, StepPool


@pytest.fixture
def gate():
    """An event on which calls hang; opened at the end so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def fail():
    raise ValueError("bad\n board")


def test_results_come_in_order():
    with StepPool(workers=4) as pool:
        assert pool.run([]) == []
        assert pool.run([lambda i=i: i * i for i in range(1000)]) == [i * i for i in range(1000)]
        assert pool.run([lambda: None]) == [None]
        assert (pool.faults, pool.abandoned, pool.retried) == (0, 0, 0)


def test_calls_run_at_the_same_time_and_no_more_than_workers():
    barrier = threading.Barrier(3, timeout=10)
    with StepPool(workers=3) as pool:
        pool.run([barrier.wait] * 9)  # each three need each other
        names = pool.run([lambda: (time.sleep(0.01), threading.get_ident())[1] for _ in range(30)])
    assert len(set(names)) <= 3


def test_a_call_that_raises_is_a_fault_and_others_are_not():
    with StepPool(workers=2, retries=0) as pool:
        assert pool.run([lambda: 1, fail, lambda: 3]) == [1, Fault("ValueError: bad board"), 3]
        assert (pool.faults, pool.abandoned, pool.retried) == (1, 0, 0)
        assert pool.run([lambda: 4]) == [4]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, RecursionError])
def test_nothing_that_a_call_raises_escapes(kind):
    def call():
        raise kind

    with StepPool(workers=1, retries=0) as pool:
        assert pool.run([call, lambda: 2]) == [Fault(kind.__name__), 2]


def test_an_exception_that_cannot_print_itself():
    class RudeError(Exception):
        def __str__(self):
            raise RuntimeError

    def call():
        raise RudeError

    with StepPool(workers=1, retries=0) as pool:
        (fault,) = pool.run([call])
    assert fault.reason == "RudeError: (its message cannot be read)"


def test_a_long_message_is_cut():
    def call():
        raise ValueError("x" * 10_000)

    with StepPool(workers=1, retries=0) as pool:
        (fault,) = pool.run([call])
    assert len(fault.reason) == 300


@pytest.mark.parametrize(("failures", "retries", "ok"), [(1, 1, True), (2, 1, False), (2, 2, True), (1, 0, False)])
def test_a_failed_call_is_tried_again(failures, retries, ok):
    attempts = []

    def flaky():
        attempts.append(1)
        if len(attempts) <= failures:
            raise OSError("service lost")
        return "fine"

    with StepPool(workers=2, retries=retries) as pool:
        assert pool.run([flaky]) == (["fine"] if ok else [Fault("OSError: service lost")])
        assert len(attempts) == min(failures, retries) + 1
        assert pool.retried == min(failures, retries)
        assert pool.faults == (not ok)


def test_a_hung_call_is_abandoned_and_the_rest_goes_on(gate):
    with StepPool(workers=2, timeout_s=0.1, retries=0) as pool:
        start = time.monotonic()
        results = pool.run([gate.wait, *([lambda: 1] * 20), gate.wait])
        assert time.monotonic() - start < 5
        assert results == [Fault("timed out after 0.1 s"), *([1] * 20), Fault("timed out after 0.1 s")]
        assert (pool.faults, pool.abandoned) == (2, 2)
        assert pool.run([lambda: 2] * 5) == [2] * 5  # with new workers


def test_time_counts_from_when_a_call_begins():
    with StepPool(workers=1, timeout_s=0.5, retries=0) as pool:  # 1 s in all, but none is late
        assert pool.run([lambda i=i: (time.sleep(0.1), i)[1] for i in range(10)]) == list(range(10))


def test_a_hung_call_is_tried_again(gate):
    attempts = []

    def hangs_once():
        attempts.append(1)
        if len(attempts) == 1:
            gate.wait()
        return "fine"

    with StepPool(workers=1, timeout_s=0.1, retries=1) as pool:
        assert pool.run([hangs_once, lambda: 2]) == ["fine", 2]
        assert (pool.abandoned, pool.retried, pool.faults) == (1, 1, 0)


def test_a_late_result_is_thrown_away(gate):
    def late():
        gate.wait()
        return "late"

    with StepPool(workers=1, timeout_s=0.1, retries=0) as pool:
        results = pool.run([late, lambda: 2])
        gate.set()
        time.sleep(0.1)
        assert results == [Fault("timed out after 0.1 s"), 2]
        assert pool.run([lambda: 3]) == [3]
        assert pool.faults == 1


def test_hung_workers_are_bounded(gate):
    before = threading.active_count()
    with StepPool(workers=2, timeout_s=0.1, retries=1, max_abandoned=4) as pool:
        results = pool.run([gate.wait] * 20)
        assert threading.active_count() - before <= 4 + 2
        assert 4 <= pool.abandoned <= 5
        assert pool.faults == 20
        assert {type(result) for result in results} == {Fault}
        assert results[-1].reason.startswith("not run: ")
        assert "the limit is 4" in results[-1].reason
        start = time.monotonic()
        assert [type(result) for result in pool.run([lambda: 1] * 3)] == [Fault] * 3  # at once
        assert time.monotonic() - start < 0.1
        assert pool.faults == 23


def test_workers_that_come_back_make_room(gate):
    with StepPool(workers=2, timeout_s=0.1, retries=0, max_abandoned=2) as pool:
        pool.run([gate.wait] * 3)
        assert isinstance(pool.run([lambda: 1])[0], Fault)
        gate.set()
        deadline = time.monotonic() + 5
        while isinstance(pool.run([lambda: 1])[0], Fault):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert pool.run([lambda: 2] * 4) == [2] * 4


@pytest.mark.parametrize("hangs", [False, True])
def test_a_batch_after_an_interrupted_one(gate, monkeypatch, hangs):
    pool = StepPool(workers=1, timeout_s=0.2, retries=3)
    ran, begun = [], threading.Event()

    def first():
        begun.set()
        gate.wait()

    def interrupt():
        begun.wait()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool, "collect", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.run([first, lambda: ran.append(1), lambda: ran.append(2)])
    if not hangs:
        gate.set()
    assert pool.run([lambda: "next"] * 3) == ["next"] * 3
    assert ran == []
    assert (pool.faults, pool.retried, pool.abandoned) == (0, 0, hangs)
    pool.close()


def test_an_unlimited_time_is_allowed():
    with StepPool(workers=1, timeout_s=float("inf")) as pool:
        assert pool.run([lambda: 1]) == [1]


def test_close_returns_at_once_and_idle_workers_end(gate):
    pool = StepPool(workers=2, timeout_s=0.1, retries=0)
    before = threading.active_count()
    pool.run([gate.wait, lambda: 1])
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 0.1
    deadline = time.monotonic() + 5
    while threading.active_count() > before + 1:  # the hung one stays
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="closed"):
        pool.run([lambda: 1])


def test_the_interpreter_exits_although_calls_hang():
    program = """
        import threading, time
        from esopt_jax.rollouts.workers import StepPool
        pool = StepPool(workers=2, timeout_s=0.2, retries=1)
        print([type(r).__name__ for r in pool.run([threading.Event().wait, lambda: time.sleep(1e6), lambda: 1])])
        pool.close()
        print(pool.abandoned, time.time())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    ended = time.time()
    kinds, last = done.stdout.splitlines()
    assert kinds == "['Fault', 'Fault', 'int']"
    abandoned, finished = last.split()
    assert abandoned == "4"
    assert ended - float(finished) < 5
    assert done.stderr == ""
