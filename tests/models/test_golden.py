"""Logits and greedy replies that transformers gave, checked without torch (`tests/golden/make_model_golden.py`)."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.models.layout import by_tensor, split_tensors, tensor_shape
from esopt_jax.models.registry import decode_step, init_cache, leaf_specs, parse_architecture, prefill, score

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module", params=["model.npz", "llama.npz"])
def golden(request):
    with np.load(GOLDEN / request.param) as file:
        return {name: file[name] for name in file}


@pytest.fixture(scope="module")
def model(golden):
    arch = parse_architecture(json.loads(str(golden["config"])))
    specs = leaf_specs(arch)
    rule = runpy.run_path(str(GOLDEN / "make_model_golden.py"))["weights"]
    shapes = {name: tensor_shape(leaves) for name, leaves in by_tensor(specs).items()}
    tensors = rule(shapes, float(golden["strength"]))
    return arch, {path: jnp.asarray(leaf) for path, leaf in split_tensors(tensors, specs).items()}


def test_logits(golden, model):
    arch, params = model
    tokens = golden["tokens"]
    run = jax.jit(score, static_argnames="arch")
    found = run(params, tokens, np.full(len(tokens), tokens.shape[1]), arch=arch)
    assert np.abs(golden["logits"]).max() > 1
    np.testing.assert_allclose(found, golden["logits"], rtol=0, atol=5e-5)


def test_greedy_replies(golden, model):
    arch, params = model
    expected = golden["greedy"]
    rows, new = expected.shape
    assert len(np.unique(expected)) > 5
    read, step = (jax.jit(f, static_argnames="arch") for f in (prefill, decode_step))
    prompt = golden["tokens"][:, :20]
    logits, cache = read(params, init_cache(arch, rows, 20 + new), prompt, np.full(rows, 20), arch=arch)
    found = [jnp.argmax(logits, -1)]
    for _ in range(new - 1):
        logits, cache = step(params, cache, found[-1], np.ones(rows, bool), arch=arch)
        found.append(jnp.argmax(logits, -1))
    np.testing.assert_array_equal(np.stack(found, axis=1), expected)
