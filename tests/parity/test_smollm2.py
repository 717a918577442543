"""A real model, SmolLM2-135M-Instruct in four bits, against what transformers reads from the same GGUF file."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from hf_replies import greedy_replies
from smollm2 import smollm2

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[parity]'")

from esopt_jax.config import RolloutConfig  # noqa: E402
from esopt_jax.models.load import load_model  # noqa: E402
from esopt_jax.models.registry import load_architecture, score  # noqa: E402
from esopt_jax.rollouts.chat import load_chat  # noqa: E402
from esopt_jax.rollouts.decode import DecodeSpec, Segment, decode_segment, init_state, start_turn  # noqa: E402
from esopt_jax.rollouts.sampler import make_sampling  # noqa: E402

pytestmark = [pytest.mark.parity, pytest.mark.slow, pytest.mark.timeout(1200)]

NEW = 64
QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "List three prime numbers above 20.",
    "Explain photosynthesis to a child.",
    "Translate 'good morning' into Spanish.",
    "What is 17 + 25?",
    "Name the largest ocean.",
    "Give me a recipe for pancakes.",
    "Who wrote Hamlet?",
    "Sort these numbers: 9, 4, 7, 1.",
    "What does HTTP stand for?",
    "Describe the color blue without naming it.",
    "Why is the sky blue?",
    "Write a Python function that reverses a string.",
    "Summarize the plot of Cinderella in two sentences.",
    "What is the boiling point of water in Fahrenheit?",
    "Suggest a name for a black cat.",
    "How many legs does a spider have?",
    "Complete the sequence: 2, 4, 8, 16,",
    "Say hello in four languages.",
)


@pytest.fixture(scope="module")
def ours():
    return load_model(smollm2())


@pytest.fixture(scope="module")
def theirs(ours):
    """By transformers' own reader; `from_pretrained` would call it too, but wants one more package for that."""
    from transformers import AutoConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # several wait for each other on a busy machine
    config = AutoConfig.from_pretrained(ours.folder.parent, gguf_file=ours.folder.name)
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).eval()
    tensors = load_gguf_checkpoint(str(ours.folder), return_tensors=True, model_to_load=model)["tensors"]
    report = model.load_state_dict(tensors, strict=False)
    assert set(report.missing_keys) <= {"lm_head.weight"} and not report.unexpected_keys  # which is tied
    return model


@pytest.fixture(scope="module")
def prompts(ours):
    chat = load_chat(ours.folder, thinking=False, eos_ids=ours.eos_ids)
    return chat.prompts([[{"role": "user", "content": text}] for text in QUESTIONS])


def test_it_is_the_published_model(ours):
    assert ours.arch == load_architecture("smollm2-135m")
    assert sum(leaf.size for leaf in ours.params.values()) == 134_515_008


def test_weights_and_logits(ours, theirs, prompts):
    table = theirs.get_input_embeddings().weight.numpy()
    np.testing.assert_allclose(ours.params["embed_tokens.weight"], table, rtol=0, atol=1e-6)
    ids = np.array([prompts[3] + prompts[7] + prompts[13]])
    found = jax.jit(score, static_argnames="arch")(ours.params, ids, np.array([ids.size]), arch=ours.arch)
    expected = theirs(torch.as_tensor(ids)).logits.numpy()
    error = np.abs(np.asarray(found) - expected).max()
    print(f"largest error of a logit {error:.2e}, largest logit {np.abs(expected).max():.1f}, {ids.size} tokens")
    assert error < 1e-3


def test_greedy_replies(ours, theirs, prompts):
    """20 prompts of different lengths, left-padded there and packed here, 64 new tokens each."""
    longest = max(map(len, prompts))
    padded = np.zeros((len(prompts), longest), np.int64)
    mask = np.zeros_like(padded)
    for row, ids in enumerate(prompts):
        padded[row, longest - len(ids) :], mask[row, longest - len(ids) :] = ids, 1
    expected = greedy_replies(theirs, padded, mask, NEW)
    np.testing.assert_array_equal(replies(ours, prompts), expected)


def replies(model, prompts):
    """Greedy, without an end, `[B, NEW]`."""
    shape, longest = (1, len(prompts)), max(map(len, prompts))
    spec = DecodeSpec(
        arch=model.arch,
        eos_ids=(),
        vocab_limit=model.vocab_limit,
        max_new_tokens=NEW,
        capacity=longest + NEW,
    )
    tokens = np.stack([np.pad(ids, (0, longest - len(ids))) for ids in prompts])[None]
    segment = Segment(tokens=tokens, lengths=np.array([list(map(len, prompts))]), fresh=np.ones(shape, bool))
    keys, greedy = jax.random.split(jax.random.key(0), shape), make_sampling(RolloutConfig(temperature=0.0))
    start, write = (jax.jit(partial(f, spec=spec, axes=None)) for f in (start_turn, decode_segment))
    state = start(model.params, init_state(spec, shape), segment, keys, greedy)
    return np.asarray(write(model.params, state, NEW, greedy).tokens)[0]
