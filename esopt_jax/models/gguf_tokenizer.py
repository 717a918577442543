"""The tokenizer and chat template inside a GGUF file.

Built here from the file's vocabulary and merges. What `transformers` builds from such a file needs torch, and splits
text as GPT-2 did where it does not know the file's own rule: a blank line before a digit, say, then becomes other
tokens than those that the model was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.models.gguf_file import open_gguf, read_gguf

_CONTROL, _USER_DEFINED = 3, 4
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_tokenizer(path: Path) -> Any:
    """The `PreTrainedTokenizerFast` of the GGUF file at `path`, with its chat template if it has one.

    Raises:
        EsoptError: the file has no byte-level BPE, or one that splits text by a rule that is not known here.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    fields, _ = open_gguf(path)
    part = {name: fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre", "tokens", "merges", "token_type")}
    splits = _splits()
    if part["model"] != "gpt2" or part["pre"] not in splits or part["merges"] is None:
        raise EsoptError(
            f"{path} has a tokenizer of model {part['model']!r} and split {part['pre']!r}; supported: model gpt2 with "
            f"split {', '.join(splits)}"
        )
    tokens = part["tokens"]
    tokenizer = Tokenizer(
        models.BPE(
            {token: i for i, token in enumerate(tokens)},
            [tuple(merge.split(" ")) for merge in part["merges"]],
            ignore_merges=part["pre"] == "llama-bpe",
        )
    )
    tokenizer.pre_tokenizer = splits[part["pre"]]()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = list(zip(tokens, part["token_type"] or (), strict=False))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in kinds if k == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t, k in kinds if k == _USER_DEFINED])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=fields.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **_named(fields),
    )


def write_companions(path: Path, folder: Path) -> None:
    """Write into `folder` what a Hugging Face model has beside its weights, from the GGUF file at `path`."""
    config = read_gguf(path).config
    generation = {name: config[name] for name in ("bos_token_id", "eos_token_id")}
    for name, content in (("config", config), ("generation_config", generation)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    read_tokenizer(path).save_pretrained(folder)


def _splits() -> dict[str, Callable[[], Any]]:
    """Name of a splitting rule in a GGUF file -> what does it."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    plain = lambda: ByteLevel(add_prefix_space=False)  # noqa: E731
    return {
        "gpt-2": plain,
        "smollm": lambda: Sequence([Digits(individual_digits=True), plain()]),
        "llama-bpe": lambda: Sequence(
            [Split(Regex(_LLAMA_3), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
        ),
    }


def _named(fields: Mapping[str, Any]) -> dict[str, str]:
    """Which tokens the file names for which purpose."""
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {name: fields["tokenizer.ggml.tokens"][i] for name, i in ids.items() if i is not None}
