"""construct_asp: the greedy choice is that of a plain loop, and what comes of it is an admissible set."""

import itertools

import numpy as np
import pytest
from run_here import run_here

from esopt_jax.errors import EsoptError
from esopt_jax.search.tasks.admissible import BLOCKS, INSEPARABLE, as_words, codes_of_weight, greedy_set
from esopt_jax.search.tasks.construct_asp import CONSTRUCT_ASP, set_sizes
from esopt_jax.search.tasks.task import InvalidSolutionError

WEIGHTS = [0, 1, 1, 2, 2, 3, 3]


def plain_set(letters, weight, priority):
    """Try every word that is left after every choice."""
    left = [
        code for code in itertools.product(range(7), repeat=letters // 3) if sum(WEIGHTS[c] for c in code) == weight
    ]
    scores = {code: priority(sum((BLOCKS[c] for c in code), ()), letters, weight) for code in left}
    chosen = []
    while left:
        best = max(left, key=scores.__getitem__)

        def stays(code, best=best):
            pairs = [(WEIGHTS[a], WEIGHTS[b]) for a, b in zip(code, best, strict=True)]
            if all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs):
                return False
            return not any(all(INSEPARABLE[triple] for triple in zip(code, best, old, strict=True)) for old in chosen)

        left = [code for code in left if stays(code)]
        chosen.append(best)
    return chosen


def every_word(code):
    turns = [{BLOCKS[c][i:] + BLOCKS[c][:i] for i in range(3)} for c in code]
    return [sum(blocks, ()) for blocks in itertools.product(*turns)]


def lottery(el, n, w):
    return sum(np.sin(3.0 * i + 7.0 * letter) for i, letter in enumerate(el)) + n / w


@pytest.mark.parametrize(("letters", "weight"), [(6, 3), (9, 5), (12, 7)])
def test_the_set_is_that_of_the_plain_loop_for_random_priorities(letters, weight):
    inputs = CONSTRUCT_ASP.inputs(np.array([[letters, weight]]))
    plain = plain_set(letters, weight, lottery)
    expected = sum(len(every_word(code)) for code in plain)
    assert set_sizes(inputs, run_here(CONSTRUCT_ASP, lottery, inputs)).tolist() == [expected]


def test_35_of_the_sorted_triples_of_block_types_are_ruled_out_as_published():
    triples = itertools.combinations_with_replacement(range(7), 3)
    assert sum(INSEPARABLE[triple] for triple in triples) == 35


def test_the_set_is_admissible():
    codes = codes_of_weight(3, 5)
    chosen = codes[greedy_set(codes, np.random.default_rng(0).random(len(codes)))]
    words = [word for code in chosen for word in every_word(code)]
    assert len(words) == len(set(words)) > 40
    separating = {(0, 0, 1), (0, 0, 2), (0, 1, 2)}
    for three in itertools.combinations(words, 3):
        assert any(tuple(sorted(letters)) in separating for letters in zip(*three, strict=True))


def test_a_constant_priority_takes_words_as_they_come():
    codes = codes_of_weight(4, 7)
    chosen = greedy_set(codes, np.zeros(len(codes)))
    assert chosen[0] == 0
    assert chosen.tolist() == sorted(chosen.tolist())


def test_a_program_sees_each_word_once_as_a_tuple_of_integers():
    seen = []
    inputs = CONSTRUCT_ASP.instances("train")
    run_here(CONSTRUCT_ASP, lambda *args: seen.append(args) or 0, inputs)
    words = [el for el, *_ in seen]
    assert len(set(words)) == len(words) == 2432
    assert {(type(el), type(el[0]), len(el), n, w) for el, n, w in seen} == {(tuple, int, 15, 15, 10)}
    assert all(len(el) - el.count(0) == 10 for el in words)
    np.testing.assert_array_equal(words, as_words(codes_of_weight(5, 10)))


@pytest.mark.parametrize(("value", "reason"), [(np.nan, "word 3 is NaN"), (np.inf, None), (-np.inf, None)])
def test_nan_is_refused_and_infinity_is_a_priority(value, reason):
    inputs = CONSTRUCT_ASP.inputs(np.array([[6, 3]]))
    priorities = np.zeros(inputs["words"].shape[:2])
    priorities[0, 3] = value
    if reason is None:
        assert set_sizes(inputs, {"priorities": priorities}).item() > 0
    else:
        with pytest.raises(InvalidSolutionError, match=reason):
            set_sizes(inputs, {"priorities": priorities})
    with pytest.raises(InvalidSolutionError, match="numbers of shape"):
        set_sizes(inputs, {"priorities": priorities[:, 1:]})


def test_sizes_without_a_problem_are_refused():
    with pytest.raises(EsoptError, match="must be one of"):
        CONSTRUCT_ASP.instances("test", 18)
    with pytest.raises(EsoptError, match=r"words of 10 letters.*; words of weight 11;"):
        CONSTRUCT_ASP.inputs(np.array([[10, 11]]))
