import pytest

from esopt_jax.core.schedules import KINDS, schedule
from esopt_jax.errors import EsoptError


@pytest.mark.parametrize(
    ("end", "generations", "generation", "expected"),
    [
        (2.5e-4, 100, 0, 1e-3),
        (2.5e-4, 100, 1, 9.99811203394e-4),
        (2.5e-4, 100, 49, 6.30949736e-4),
        (2.5e-4, 100, 99, 2.5e-4),
        (5e-4, 25, 1, 9.97861215343e-4),
        (5e-4, 25, 12, 7.5e-4),
        (5e-4, 25, 24, 5e-4),
    ],
)
def test_published_cosine_values(end, generations, generation, expected):
    assert schedule("cosine", 1e-3, end, generation, generations) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 3, 9, 50])
@pytest.mark.parametrize(("start", "end"), [(0.1, 0.3), (0.7, 0.1)])
def test_exact_at_both_ends_and_monotone(kind, warmup, start, end):
    values = [schedule(kind, start, end, g, 10, warmup) for g in range(10)]
    assert values[0] == start
    assert values[9] == end
    assert values[: min(warmup, 9)] == [start] * min(warmup, 9)
    assert values == sorted(values, reverse=start > end)
    assert schedule(kind, start, end, 1000, 10, warmup) == end


def test_constant_and_single_generations_stay():
    assert {schedule("constant", 0.1, 0.5, g, 10) for g in range(10)} == {0.1}
    assert all(schedule(kind, 0.1, 0.5, 0, 1) == 0.1 for kind in KINDS)


def test_linear_is_a_line_after_its_warmup():
    assert [schedule("linear", 1.0, 0.0, g, 6, 2) for g in range(6)] == pytest.approx([1, 1, 1, 2 / 3, 1 / 3, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cosin", 1.0, 1.0, 0, 2), "did you mean 'cosine'"),
        (("linear", -1.0, 1.0, 0, 2), "start is -1.0"),
        (("linear", 1.0, float("nan"), 0, 2), "end is nan"),
        (("linear", 1.0, 1.0, 0, 2, -1), "warmup -1"),
        (("linear", 1.0, 1.0, -1, 2), "generation -1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(EsoptError, match=message):
        schedule(*arguments)
