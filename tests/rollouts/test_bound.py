"""The products whose time bounds a step of decoding: each matrix once, with the rows that meet it."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.views import Factored, Shared
from esopt_jax.rollouts import bound
from esopt_jax.types import LeafSpec

SPECS = (
    LeafSpec("embed_tokens.weight", (9, 4), (None, None), 1, "normal", "", group="embedding"),
    LeafSpec("up", (4, 2, 3), (None, None, None), 1, "normal", ""),
    LeafSpec("down", (2, 3, 4), (None, None, None), 2, "normal", ""),
    LeafSpec("norm", (4,), (None,), 0, "ones", "", group="norm"),
)
HEAD = LeafSpec("lm_head.weight", (9, 4), (None, None), 1, "normal", "", group="embedding")
MEMBERS, CASES = 5, 7


def leaf(spec, kind):
    base = jnp.ones(spec.shape)
    rows, columns = spec.noise_form
    match kind:
        case "own":
            return jnp.ones((MEMBERS, *spec.shape))
        case "shared":
            return Shared(base)
        case _:
            return Factored(base, jnp.ones((MEMBERS, 1, rows)), jnp.ones((MEMBERS, 1, columns)))


@pytest.fixture
def found(monkeypatch):
    """The program that was timed, and with which steps."""
    calls = []
    program = bound.products

    def remember(view, rows, *, specs, steps):
        text = program.lower(view, rows, specs=specs, steps=steps).as_text()
        calls.append((text, int(steps)))
        return program(view, rows, specs=specs, steps=steps)

    monkeypatch.setattr(bound, "products", remember)
    return calls


def operations(text):
    """Multiplications of all products of a step."""
    tensor = r"tensor<([\dx]+)xf32>"
    total = []
    for x, _, y in re.findall(rf"dot_general.*: \({tensor}, {tensor}\) -> {tensor}", text):
        out = np.prod([int(n) for n in y.split("x")])
        total.append(int(out * int(x.split("x")[-1])))
    return total


@pytest.mark.parametrize("kind", ["own", "shared", "factored"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_matrix_meets_every_row_once(found, kind, tied):
    specs = SPECS if tied else (*SPECS, HEAD)
    view = {spec.path: leaf(spec, kind if spec.is_matrix else "own") for spec in specs}
    assert bound.product_seconds(view, (MEMBERS, CASES), specs=specs, dtype=jnp.float32) > 0
    rows = MEMBERS * CASES
    assert sorted(operations(found[0][0])) == sorted([rows * 9 * 4, rows * 4 * 6, rows * 6 * 4])


def test_a_short_step_is_timed_several_times_in_one_call(found):
    view = {spec.path: leaf(spec, "own") for spec in SPECS}
    bound.product_seconds(view, (MEMBERS, CASES), specs=SPECS, dtype=jnp.float32)
    steps = [count for _, count in found]
    assert steps[:2] == [1, 1] and steps[2] > 1 and len(set(steps[2:])) == 1 and len(steps) == 2 + bound.ROUNDS


def test_no_product_leaves_the_loop():
    """XLA may not compute once what every step must."""
    view = {spec.path: leaf(spec, "shared") for spec in SPECS if spec.is_matrix}
    rows = {width: jnp.ones((MEMBERS, CASES, width)) for width in (4, 6)}
    specs = tuple(spec for spec in SPECS if spec.is_matrix)
    text = bound.products.lower(view, rows, specs=specs, steps=np.int32(3)).compile().as_text()
    assert "dot_general" in text and "dot_general" not in text[text.index("ENTRY") :]
