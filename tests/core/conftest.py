"""A leaf table with every kind of leaf: vectors, small matrices of equal and of odd forms, and one large leaf."""

import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.types import LeafSpec


def leaf(path, shape, inputs=0, *, group=None, keep_float32=False):
    group = group or ("matrix" if inputs else "norm")
    return LeafSpec(path, shape, (None,) * len(shape), inputs, "normal", path, group=group, keep_float32=keep_float32)


@pytest.fixture(scope="session")
def specs():
    return (
        leaf("embed.weight", (11, 8), 1, group="embedding"),
        leaf("layers.0.up.weight", (8, 300), 1),
        leaf("layers.1.up.weight", (8, 300), 1),
        leaf("layers.0.conv#q", (4, 2, 5), group="conv"),
        leaf("layers.0.A_log", (3,), group="gate", keep_float32=True),
        leaf("norm.weight", (8,)),
        leaf("large.weight", (691, 200), 1),  # above the pool limit; the last of its row blocks would not fit evenly
    )


@pytest.fixture(scope="session")
def params(specs):
    rng = np.random.default_rng(0)
    return {spec.path: jnp.asarray(0.1 * rng.standard_normal(spec.shape), jnp.float32) for spec in specs}
