"""The tokenizer of the tiny base: 128 tokens, one for every character and one for every word of the game.

Any text of printable ASCII and newlines is encoded without loss. A move costs five tokens
(`set`, ` 3`, ` 1`, ` 4`, end), a board one token a cell.
"""

from pathlib import Path

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<unk>")
REASONING = ("<think>", "</think>")  # special to the tokenizer but part of the text, as in Qwen's
PRINTABLE = tuple(map(chr, range(32, 127)))
ARGUMENTS = tuple(f" {digit}" for digit in range(1, 10))
WORDS = (
    *("set", "user", "assistant", "system", "look", "guess", "format", "range", "given", "filled"),
    *("row", "col", "digit", "board", "empty", "sudoku", "move"),
)
VOCABULARY = {token: i for i, token in enumerate((*SPECIAL, *PRINTABLE, "\n", *ARGUMENTS, *WORDS))}

# As Qwen's: with thinking off, the thought is closed before the reply begins.
CHAT_TEMPLATE = (
    r"{%- for m in messages %}"
    r"{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    r"{%- endfor %}"
    r"{%- if add_generation_prompt %}"
    r"{{- '<|im_start|>assistant\n' }}"
    r"{%- if enable_thinking is defined and enable_thinking %}{{- '<think>' }}"
    r"{%- else %}{{- '<think></think>' }}{%- endif %}"
    r"{%- endif %}"
)


def token_ids(*tokens: str) -> list[int]:
    """The ids of whole tokens."""
    return [VOCABULARY[token] for token in tokens]


def write_tokenizer(folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` into `folder`."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # There are no merges: a piece that is in the vocabulary is taken whole, any other falls apart into characters.
    vocabulary = dict(VOCABULARY)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[], unk_token="<unk>", fuse_unk=False, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?[0-9]|[a-z]+|[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken(token, special=token not in REASONING, normalized=False) for token in SPECIAL])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=1024,
    ).save_pretrained(folder)
