"""The tokenizer and chat template of a GGUF file."""

from __future__ import annotations

import numpy as np
import pytest
from gguf_files import METADATA, TOKENIZER, write_gguf

from esopt_jax.errors import EsoptError
from esopt_jax.models.gguf_tokenizer import read_tokenizer
from esopt_jax.rollouts.chat import load_chat


@pytest.fixture
def write(tmp_path):
    """`write(**changes)` -> a file without tensors."""
    return lambda **change: write_gguf(
        tmp_path / "m.gguf", {"x": np.zeros(1, np.float32)}, METADATA | TOKENIZER | change
    )


def tokens(path, text):
    return read_tokenizer(path).tokenize(text)


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        # a digit stands alone, so the white space before it is split as at the end of a text
        ("smollm", ["x", "ĊĊ", "1", "ĠĠ", "2", "Ġ", "1", "Ġx"]),
        ("gpt-2", ["x", "Ċ", "Ċ", "1", "Ġ", "Ġ", "2", "Ġ1", "Ġx"]),
        ("llama-bpe", ["x", "ĊĊ", "1", "Ġ", "Ġ", "2", "Ġ", "1", "Ġx"]),
    ],
)
def test_text_is_split_by_the_rule_of_the_file(write, pre, expected):
    assert tokens(write(**{"tokenizer.ggml.pre": pre}), "x\n\n1  2 1 x") == expected


def test_control_and_user_tokens_stay_whole(write):
    tokenizer = read_tokenizer(write())
    assert tokenizer.tokenize("x<|b|>1<think>") == ["x", "<|b|>", "1", "<think>"]
    assert tokenizer.decode([8, 1, 3], skip_special_tokens=True) == "x<think>"


def test_a_chat(write):
    chat = load_chat(write(), thinking=False)
    assert chat.end_of_turn == 2 and chat.stop_ids == (2,)
    assert chat.prompts([[{"role": "user", "content": "1 x"}]]) == [(0, 6, 11, 2, 0)]
    assert chat.prompts([[{"role": "user", "content": "2"}]], append=True) == [(0, 7, 2, 0)]
    assert chat.text((8, 11, 2)) == "x x"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tokenizer.ggml.pre": "default"}, "split 'default'; supported: model gpt2 with split gpt-2, smollm, llama"),
        ({"tokenizer.ggml.model": "llama"}, "a tokenizer of model 'llama'"),
        ({"tokenizer.ggml.merges": None}, "supported: model gpt2"),
        ({"tokenizer.chat_template": None}, "has no chat template"),
        ({"tokenizer.ggml.eos_token_id": None}, "has no eos_token"),
    ],
)
def test_what_cannot_be_used_is_refused(write, change, expected):
    with pytest.raises(EsoptError) as caught:
        load_chat(write(**change), thinking=False)
    assert expected in str(caught.value) and "\n" not in str(caught.value)
