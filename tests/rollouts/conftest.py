"""A tiny tokenizer and tiny random models, made once a session."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from esopt_jax.models.init import init_params
from esopt_jax.models.load import Model
from esopt_jax.models.qwen3_5_config import FULL, LINEAR, Qwen35
from esopt_jax.models.registry import leaf_specs
from esopt_jax.rollouts.chat import Chat, load_chat

TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{- raise_exception('unknown role') }}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content|trim + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- else %}{{- '<think>\\n' }}{%- endif %}{%- endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def make_tokenizer(folder: Path) -> None:
    """One token a character, ChatML, `<|im_end|>` as end of turn and a beginning-of-text token that encoding adds."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(32, 127)] + ["\n"]
    vocabulary = {"<unk>": 0, **{letter: i for i, letter in enumerate(letters, 1)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", *SPECIAL)])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def make_model(
    folder: Path,
    *,
    width: int = 16,
    layers: int = 2,
    delta_heads: tuple[int, int] = (1, 3),
    seed: int = 0,
    std: float = 0.3,
) -> Model:
    """A random model with the vocabulary of the tokenizer in `folder`, padded to 128; layers alternate their kind."""
    arch = Qwen35(
        vocab_size=128,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        layer_types=tuple((LINEAR, FULL)[i % 2] for i in range(layers)),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=width // 2,
        linear_num_key_heads=delta_heads[0],
        linear_num_value_heads=delta_heads[1],
        linear_key_head_dim=8,
        linear_value_head_dim=6,
        linear_conv_kernel_dim=4,
        rms_norm_eps=1e-6,
        rope_theta=1e4,
        rotary_dim=4,
        tie_word_embeddings=True,
        initializer_range=std,
    )
    specs = leaf_specs(arch)
    return Model(
        arch=arch,
        specs=specs,
        params=init_params(jax.random.key(seed), specs, std=std),
        dtypes={},
        tokenizer_path=folder / "tokenizer.json",
        eos_ids=(),
        vocab_limit=103,
        folder=folder,
    )


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def chat(tokenizer_folder: Path) -> Chat:
    return load_chat(tokenizer_folder, thinking=False)


@pytest.fixture(scope="session")
def tiny(tokenizer_folder: Path) -> Model:
    return make_model(tokenizer_folder)
