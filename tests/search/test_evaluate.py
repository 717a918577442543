"""Programs scored on every task, by our rules and by the published ones."""

from dataclasses import replace

import numpy as np
import pytest
from run_here import NoSandbox

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.aco_cvrp import colony_lengths
from esopt_jax.search.tasks.evaluate import evaluate
from esopt_jax.search.tasks.instances import read_array
from esopt_jax.search.tasks.published import as_published
from esopt_jax.search.tasks.registry import TASKS, find_task

NEAREST = "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
ANSWERS = {
    "construct_tsp": NEAREST + "    return unvisited_nodes[0]",
    "construct_kp": "def select_next_item(room, weights, values):\n    return weights.argmin()",
    "construct_asp": "def priority(el, n, w):\n    return sum(el)",
    "aco_tsp": "def heuristics_v2(distance_matrix):\n    return 1 / distance_matrix",
    "aco_cvrp": "def heuristics_v2(distance_matrix, coordinates, demands, capacity):\n    return 1 / distance_matrix",
    "aco_bpp": "def heuristics_v2(demand, capacity):\n    return demand[None] + 0.0 * demand[:, None]",
}
SMALL = {"construct_asp": 12, "aco_bpp": 40}


def small(name, split="val"):
    task = TASKS[name]
    inputs = task.instances(split, SMALL.get(name, 20))
    return task, {key: array[:4] if array.ndim else array for key, array in inputs.items()}


@pytest.mark.parametrize("name", TASKS)
def test_a_program_gets_the_same_score_twice_and_a_missing_function_is_named(name):
    task, inputs = small(name, "test" if name == "construct_asp" else "val")
    first, again = (evaluate(task, ANSWERS[name], inputs, NoSandbox()) for _ in range(2))
    assert first.valid and first.reason is None and first.instances == len(inputs["seeds"])
    assert first.objective == again.objective
    nothing = evaluate(task, "answer = 42", inputs, NoSandbox())
    assert (nothing.objective, nothing.valid, nothing.instances) == (None, False, 0)
    assert "the program defines no function" in nothing.reason


def test_runs_in_parts_give_the_score_of_one_run():
    task, inputs = small("aco_bpp")
    whole, parts = NoSandbox(), NoSandbox()
    at_once = evaluate(task, ANSWERS[task.name], inputs, whole)
    in_parts = evaluate(replace(task, per_run=lambda inputs: 3), ANSWERS[task.name], inputs, parts)
    assert (whole.runs, parts.runs) == (1, 2)
    assert in_parts.objective == at_once.objective


def test_the_matrices_of_a_run_stay_below_64_mib():
    assert TASKS["aco_bpp"].per_run(TASKS["aco_bpp"].instances("test", 1000)) == 8


def test_a_solution_that_is_none_is_invalid_with_its_reason():
    task, inputs = small("aco_tsp")
    code = "import numpy as np\ndef heuristics_v2(d):\n    return np.where(d == d.max(), np.nan, d)"
    evaluation = evaluate(task, code, inputs, NoSandbox())
    assert not evaluation.valid
    assert evaluation.reason == "the heuristics of instance 0 are not all finite in float32"


def test_published_rules_take_any_of_the_published_names():
    task, inputs = small("aco_tsp")
    code = ANSWERS["aco_tsp"].replace("_v2", "_v17")
    assert not evaluate(task, code, inputs, NoSandbox()).valid
    published = evaluate(as_published(task, "train"), code, inputs, NoSandbox())
    assert published.objective == evaluate(task, ANSWERS["aco_tsp"], inputs, NoSandbox()).objective
    both = code + "\ndef heuristics_v1(distance_matrix):\n    return distance_matrix"
    assert evaluate(as_published(task, "train"), both, inputs, NoSandbox()).objective > published.objective
    reason = evaluate(as_published(task, "train"), "x = 1", inputs, NoSandbox()).reason
    assert "no function heuristics or" in reason


def test_published_rules_give_demands_as_shares_to_a_function_of_two_arguments():
    task, inputs = small("aco_cvrp")
    four = ANSWERS["aco_cvrp"].replace("1 / distance_matrix", "(demands / capacity + 0.1) / distance_matrix")
    two = "def heuristics(distance_matrix, shares):\n    return (shares + 0.1) / distance_matrix"
    published = as_published(task, "train")
    assert evaluate(published, four, inputs, NoSandbox()).objective == pytest.approx(
        evaluate(published, two, inputs, NoSandbox()).objective, rel=1e-12
    )
    assert not evaluate(task, two, inputs, NoSandbox()).valid


def test_the_published_final_evaluator_of_routes_counts_nan_as_nothing():
    task, inputs = small("aco_cvrp")
    code = ANSWERS["aco_cvrp"].replace("1 / distance_matrix", "coordinates[:, :1] / (distance_matrix - 1)")
    code = "import numpy as np\nnp.seterr(all='ignore')\n" + code
    with np.errstate():
        assert "not all finite in float64" in evaluate(as_published(task, "train"), code, inputs, NoSandbox()).reason
        assert evaluate(as_published(task, "test"), code, inputs, NoSandbox()).valid


def test_published_rules_lift_the_heuristics_of_routes_and_search_in_float64():
    task, inputs = small("aco_cvrp")
    faint = {"heuristics": 1e-9 * np.random.default_rng(0).random((4, 21, 21))}
    published = as_published(task, "train").objectives(inputs, faint)
    lifted = {"heuristics": faint["heuristics"] + 1e-9}
    np.testing.assert_array_equal(published, colony_lengths(inputs, lifted, dtype=np.float64))
    assert (published != colony_lengths(inputs, faint, dtype=np.float64)).any()
    final = as_published(task, "test").objectives(inputs, faint)
    np.testing.assert_array_equal(final, colony_lengths(inputs, lifted, dtype=np.float32))


@pytest.mark.parametrize("name", ["construct_tsp", "construct_kp"])
def test_the_published_final_evaluators_leave_out_what_fails(name):
    task, inputs = small(name)
    count = "calls = [0]\n" + ANSWERS[name]
    last = count.rindex("    return")
    fails = (
        count[:last] + "    calls[0] += 1\n    if calls[0] == 3:\n        raise ValueError('third')\n" + count[last:]
    )
    assert "third" in evaluate(task, fails, inputs, NoSandbox()).reason
    assert "third" in evaluate(as_published(task, "train"), fails, inputs, NoSandbox()).reason
    left = evaluate(as_published(task, "test"), fails, inputs, NoSandbox())
    rest = {key: array[1:] if array.ndim else array for key, array in inputs.items()}
    assert left.instances == 3
    assert left.objective == evaluate(task, ANSWERS[name], rest, NoSandbox()).objective
    nothing = evaluate(as_published(task, "test"), "x = 1", inputs, NoSandbox())
    assert (nothing.valid, nothing.reason) == (False, "it failed on every instance")


def test_only_published_instances_are_drawn_by_published_rules():
    task = TASKS["construct_tsp"]
    published = as_published(task, "train")
    np.testing.assert_array_equal(published.instances("train")["cities"], task.instances("train")["cities"])
    with pytest.raises(EsoptError, match="has size 20; allowed: 50"):
        published.instances("train", 20)
    with pytest.raises(EsoptError, match=r"published test sets are not known; .* --data"):
        as_published(task, "test").instances("test")
    assert as_published(TASKS["construct_asp"], "test").instances("test", 12)["words"].shape == (1, 448, 12)


def test_an_array_is_read_from_either_kind_of_file_and_anything_else_is_refused(tmp_path):
    array = np.arange(6).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", demands=array)
    np.savez(tmp_path / "two.npz", a=array, b=array)
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "broken.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:100])
    (tmp_path / "empty.npy").touch()
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), array)
    np.testing.assert_array_equal(read_array(tmp_path / "a.npz"), array)
    for name in ("two.npz", "objects.npy", "text.npy", "broken.npz", "empty.npy", "missing.npy"):
        with pytest.raises(EsoptError, match=name):
            read_array(tmp_path / name)


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(EsoptError, match="did you mean 'construct_kp'"):
        find_task("construct_pk")
