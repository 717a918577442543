import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.core.master import Split, base_view, make_master, master_value
from esopt_jax.errors import EsoptError

FORMATS = ("float32", "split", "bfloat16")


def test_which_leaves_are_stored_how(specs, params):
    kinds = {
        name: {path: "split" if isinstance(x, Split) else x.dtype.name for path, x in master.items()}
        for name in FORMATS
        for master in [make_master(params, specs=specs, format=name)]
    }
    for spec in specs:
        assert kinds["float32"][spec.path] == "float32"
        assert kinds["split"][spec.path] == ("split" if spec.is_matrix else "float32")
        assert kinds["bfloat16"][spec.path] == ("float32" if spec.keep_float32 else "bfloat16")


@pytest.mark.parametrize("name", FORMATS)
def test_values(specs, params, name):
    master = make_master(params, specs=specs, format=name)
    for spec in specs:
        value, exact = master_value(master[spec.path]), params[spec.path]
        expected = exact if name != "bfloat16" or spec.keep_float32 else exact.astype(jnp.bfloat16).astype(jnp.float32)
        assert value.dtype == jnp.float32
        assert (value == expected).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_base_view(specs, params, name, dtype):
    master = make_master(params, specs=specs, format=name)
    view = base_view(master, specs=specs, dtype=dtype)
    for spec in specs:
        x, leaf = view[spec.path], master[spec.path]
        assert x.shape == spec.shape
        assert x.dtype == (jnp.float32 if spec.keep_float32 else dtype)
        if isinstance(leaf, Split) and dtype == jnp.bfloat16:
            assert x is leaf.hi  # no copy
        else:
            assert (x == master_value(leaf).astype(x.dtype)).all()


def test_bad_input(specs, params):
    with pytest.raises(EsoptError, match="did you mean 'split'"):
        make_master(params, specs=specs, format="spilt")
    with pytest.raises(EsoptError, match="float16"):
        base_view(make_master(params, specs=specs, format="float32"), specs=specs, dtype=jnp.float16)
    broken = {path: x for path, x in params.items() if path != "norm.weight"} | {
        "extra.weight": np.zeros(3),
        "large.weight": np.zeros((2, 2)),
    }
    with pytest.raises(
        EsoptError, match=r"missing: norm.weight; unexpected: extra.weight; wrong shape: large.weight: \(2, 2\)"
    ):
        make_master(broken, specs=specs, format="float32")
