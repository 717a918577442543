"""Single layers of Qwen3.5 against transformers' own, float32: lengths around the chunk, chunk sizes, extreme decay."""

from __future__ import annotations

import copy
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[parity]'")

from esopt_jax.models import delta_net, gated_attention  # noqa: E402
from esopt_jax.models.attention import rotation  # noqa: E402
from esopt_jax.models.decoder import layer_view  # noqa: E402
from esopt_jax.models.registry import init_cache  # noqa: E402

pytestmark = pytest.mark.parity

B = 3
segment = jax.jit(delta_net.segment, static_argnames=("arch", "chunk"))
TOLERANCE = 2e-6
"""Of the largest output, for one layer in float32."""


@pytest.fixture(scope="module")
def inputs():
    return np.random.default_rng(1).standard_normal((B, 150, 64)).astype(np.float32)


def close(found, expected):
    scale = np.abs(expected).max()
    error = np.abs(np.asarray(found) - expected).max()
    assert error <= TOLERANCE * scale, f"{error:.2e} at scale {scale:.2f}: {error / scale:.2e}"


def delta_layer(pair, x, *, shift=0.0, chunk=None):
    """Ours of layer 0, `shift` added to its `dt_bias`."""
    arch, rows = pair.ours.arch, x.shape[0]
    w = layer_view(pair.ours.params, "layers.0.linear_attn.")
    w |= {"dt_bias": w["dt_bias"] + shift}
    return segment(w, x, init_cache(arch, rows, 1).layers[0], jnp.full(rows, x.shape[1]), arch=arch, chunk=chunk)


def delta_reference(pair, x, *, shift=0.0):
    layer = copy.deepcopy(pair.theirs.model.layers[0].linear_attn)
    layer.dt_bias.add_(shift)
    return layer(torch.as_tensor(x)).numpy()


@pytest.mark.parametrize("tokens", [1, 2, 3, 63, 64, 65, 150])
def test_delta_net_layer(qwen, inputs, tokens):
    x = inputs[:, :tokens]
    close(delta_layer(qwen, x)[0], delta_reference(qwen, x))


@pytest.mark.parametrize("chunk", [1, 16])  # 8 is the default here
def test_delta_net_layer_in_any_chunks(qwen, inputs, chunk):
    close(delta_layer(qwen, inputs, chunk=chunk)[0], delta_reference(qwen, inputs))


@pytest.mark.parametrize("shift", [20.0, -20.0])
def test_delta_net_layer_that_forgets_all_or_nothing(qwen, inputs, shift):
    close(delta_layer(qwen, inputs, shift=shift)[0], delta_reference(qwen, inputs, shift=shift))


def test_delta_net_layer_token_by_token(qwen, inputs):
    arch = qwen.ours.arch
    w = layer_view(qwen.ours.params, "layers.0.linear_attn.")
    step = jax.jit(partial(delta_net.step, arch=arch))
    memory, found = init_cache(arch, B, 1).layers[0], []
    for t in range(20):
        out, memory = step(w, inputs[:, t], memory, jnp.ones(B, bool))
        found.append(out)
    close(np.stack(found, 1), delta_reference(qwen, inputs[:, :20]))
    after = delta_layer(qwen, inputs[:, :20])[1]
    for one, other in zip(jax.tree.leaves(memory), jax.tree.leaves(after), strict=True):
        close(one, np.asarray(other))


def test_attention_layer(qwen, inputs):
    arch, (rows, tokens, _) = qwen.ours.arch, inputs.shape
    x = torch.as_tensor(inputs)
    positions = torch.arange(tokens).expand(3, rows, tokens)
    causal = torch.full((tokens, tokens), float("-inf")).triu(1)[None, None]
    expected = qwen.theirs.model.layers[3].self_attn(x, qwen.theirs.model.rotary_emb(x, positions), causal)[0].numpy()
    w = layer_view(qwen.ours.params, "layers.3.self_attn.")
    turn = rotation(jnp.broadcast_to(jnp.arange(tokens), (rows, tokens)), gated_attention.frequencies(arch))
    memory, start = init_cache(arch, rows, tokens).layers[3], jnp.zeros(rows, jnp.int32)
    run = jax.jit(partial(gated_attention.segment, arch=arch))
    close(run(w, inputs, memory, turn, start, jnp.full(rows, tokens))[0], expected)


def test_the_angles_are_theirs(qwen):
    """Up to positions where a wrong frequency would turn by whole radians."""
    positions = np.arange(0, 30_000, 977)[None]
    cos, sin = rotation(jnp.asarray(positions), gated_attention.frequencies(qwen.ours.arch))
    their_cos, their_sin = qwen.theirs.model.rotary_emb(
        torch.zeros(1), torch.as_tensor(positions)[None].expand(3, 1, -1)
    )
    half = qwen.ours.arch.rotary_dim // 2
    # one ulp of an angle of 3e4 radians is 2e-3
    np.testing.assert_allclose(cos, their_cos[..., :half].numpy(), atol=4e-3)
    np.testing.assert_allclose(sin, their_sin[..., :half].numpy(), atol=4e-3)
