import numpy as np
import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.training.cases import available, held_out_tasks, permutation, training_cases
from esopt_jax.types import Task


def test_an_epoch_plays_every_task_once_when_cases_divide_them():
    played = np.concatenate([training_cases(7, g, n_tasks=12, cases=4) for g in range(3)])
    assert sorted(played) == list(range(12))
    again = np.concatenate([training_cases(7, g, n_tasks=12, cases=4) for g in range(3, 6)])
    assert sorted(again) == list(range(12)) and list(again) != list(played)


def test_no_generation_plays_a_task_twice():
    for g in range(20):
        assert len(set(training_cases(0, g, n_tasks=10, cases=7))) == 7


def test_seeds_choose_differently_and_reproducibly():
    assert list(training_cases(1, 5, n_tasks=100, cases=8)) == list(training_cases(1, 5, n_tasks=100, cases=8))
    assert list(training_cases(1, 5, n_tasks=100, cases=8)) != list(training_cases(2, 5, n_tasks=100, cases=8))


def test_order_is_a_golden():
    """Histories name tasks by index and evaluations compare runs: the order may never change."""
    assert permutation(12345, 10).tolist() == [7, 8, 5, 9, 3, 1, 0, 6, 4, 2]


def test_held_out_tasks_of_a_shorter_evaluation_are_a_prefix():
    assert list(held_out_tasks(3, n_tasks=50, episodes=8)) == list(held_out_tasks(3, n_tasks=50, episodes=20)[:8])


def test_fewer_tasks_than_asked_for_are_all_played_and_that_is_said(caplog):
    tasks = [Task(str(i)) for i in range(5)]
    assert available(5, "rollout.cases", tasks, "train") == 5 and not caplog.records
    assert available(16, "rollout.cases", tasks, "train") == 5
    assert "rollout.cases is 16, but the environment has 5 'train' tasks" in caplog.text


def test_environment_without_tasks_is_an_error():
    with pytest.raises(EsoptError, match=r"no 'eval' tasks; its tasks\('eval'\) must return"):
        available(1, "eval.episodes", [], "eval")
