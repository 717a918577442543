"""What is Llama's own, against transformers: its stretched frequencies, and rounding in bfloat16."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[parity]'")

from esopt_jax.models.llama import frequencies  # noqa: E402
from esopt_jax.models.registry import load_architecture, parse_architecture, score  # noqa: E402
from esopt_jax.models.sizes import PUBLISHED  # noqa: E402

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("name", ["llama-3.1-8b", "smollm2-135m"])
def test_frequencies_of_published_models(name):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig.from_dict(PUBLISHED[name] | {"max_position_embeddings": 131_072})
    theirs = LlamaRotaryEmbedding(config).inv_freq.numpy()
    np.testing.assert_allclose(frequencies(load_architecture(name)), theirs, rtol=5e-7)


def test_the_same_architecture_from_a_file_of_either_age(pairs, llama):
    """transformers 5 wrote the folders; what it reads from a file of transformers 4 is the same model."""
    for pair in (llama, pairs("llama-untied")):
        new = pair.theirs.config.to_dict()
        rope = dict(new.pop("rope_parameters"))
        old = new | {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope if len(rope) > 1 else None}
        again = type(pair.theirs.config).from_dict(copy.deepcopy(old))
        assert again.rope_parameters == pair.theirs.config.rope_parameters
        assert parse_architecture(old) == pair.ours.arch


def test_bfloat16_rounds_no_more_than_theirs(llama):
    ids = np.random.default_rng(5).integers(0, 128, (4, 60))
    exact = llama.logits(ids)
    half = copy.deepcopy(llama.theirs).bfloat16()(torch.as_tensor(ids)).logits.float().numpy()
    params = {path: leaf.astype(jnp.bfloat16) for path, leaf in llama.ours.params.items()}
    ours = jax.jit(score, static_argnames="arch")(params, ids, np.full(4, 60), arch=llama.ours.arch)
    theirs_off, ours_off = (np.sqrt(np.mean((x - exact) ** 2)) for x in (half, np.asarray(ours)))
    assert 1e-4 < ours_off < 1.2 * theirs_off, f"{ours_off:.2e} beside {theirs_off:.2e}"
