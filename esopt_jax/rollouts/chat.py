"""Between chat messages and token ids.

A *fresh* prompt is what the model's chat template renders. A conversation is our own append-only history of token ids:
a turn adds the end-of-turn token, if the reply lacks it, and the template's rendering of the new messages. Templates
that rewrite history (Qwen's drops earlier reasoning once the user speaks again) are deviated from there: what the
model wrote is what it sees, and the state of its memory can be carried. Decoded text is never tokenised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.models.gguf_tokenizer import read_tokenizer
from esopt_jax.rollouts.workers import Fault
from esopt_jax.types import Message

Ids = tuple[int, ...]
CACHED_TOKENS = 4_000_000
"""Token ids kept for prompts met again, about 32 MB; then the memory starts anew."""

_EARLIER = "\u2402earlier reply\u2403"


def load_chat(folder: Path, *, thinking: bool, eos_ids: Sequence[int] = ()) -> Chat:
    """The chat of the model in `folder`.

    Args:
        folder: with `tokenizer.json` and `tokenizer_config.json`; or a GGUF file.
        thinking: passed to the template in every call, since its default differs between model sizes.
        eos_ids: end ids of the model; the tokenizer's own is added.

    Raises:
        EsoptError: no tokenizer, no chat template, or no end-of-turn token.
    """
    tokenizer = read_tokenizer(folder) if folder.suffix == ".gguf" else _read_tokenizer(folder)
    if tokenizer.chat_template is None:
        raise EsoptError(f"the tokenizer in {str(folder)!r} has no chat template; use an instruction-tuned model")
    if tokenizer.eos_token_id is None:
        raise EsoptError(f"the tokenizer in {str(folder)!r} has no eos_token; set it to the token that ends a turn")
    return Chat(tokenizer, thinking=thinking, eos_ids=eos_ids)


def _read_tokenizer(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast  # AutoTokenizer would import torch where it is installed

    if not (folder / "tokenizer.json").is_file():
        raise EsoptError(f"model folder {str(folder)!r} has no tokenizer.json; an agent needs a tokenizer")
    try:
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except Exception as fault:  # the library raises whatever a damaged file leads to
        raise EsoptError(f"no tokenizer can be read from {str(folder)!r}: {' '.join(str(fault).split())}") from None


class Chat:
    """Renders, encodes and decodes, and remembers what it has met.

    Attributes:
        end_of_turn: id that closes a message.
        stop_ids: every id that ends a reply, sorted.
    """

    def __init__(self, tokenizer: Any, *, thinking: bool, eos_ids: Sequence[int] = ()):
        self.end_of_turn: int = tokenizer.eos_token_id
        self.stop_ids: Ids = tuple(sorted({*eos_ids, self.end_of_turn}))
        self._tokenizer = tokenizer
        self._encoder = tokenizer.backend_tokenizer  # half the cost of calling the wrapper
        self._encoder.no_padding()
        self._encoder.no_truncation()
        self._thinking = thinking
        self._prompts: dict[Any, Ids] = {}
        self._texts: dict[Ids, str] = {}
        self._cached = 0

    def prompts(self, conversations: Sequence[Sequence[Message]], *, append: bool = False) -> list[Ids | Fault]:
        """Token ids of each conversation, ready for the reply; a `Fault` where the template refuses the messages.

        With `append` the messages continue a conversation: the ids that follow the end-of-turn token of a reply.
        """
        keys = [_key(messages, append) for messages in conversations]
        if self._cached > CACHED_TOKENS:
            self._prompts.clear()
            self._texts.clear()
            self._cached = 0
        faults = self._learn({key for key in keys if key not in self._prompts and not isinstance(key, Fault)})
        return [key if isinstance(key, Fault) else faults.get(key) or self._prompts[key] for key in keys]

    def text(self, reply: Ids) -> str:
        """The text of a reply without its end id. Other special tokens stay, for a parser to see."""
        text = self._texts.get(reply)
        if text is None:
            ids = reply[:-1] if reply and reply[-1] in self.stop_ids else reply
            text = self.decode(ids)
            self._texts[reply] = text
            self._cached += len(reply)
        return text

    def decode(self, ids: Ids) -> str:
        """The text of any ids, special tokens included. Nothing is remembered."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _learn(self, keys: set[Any]) -> dict[Any, Fault]:
        """Remember the ids of new prompts, encoded in one batch; return those that cannot be rendered."""
        faults: dict[Any, Fault] = {}
        texts: dict[Any, str] = {}
        for key in keys:
            try:
                text = self._rendered(key)
                text.encode()  # a lone surrogate cannot be tokenised
                texts[key] = text
            except Exception as fault:  # templates raise errors of their own
                faults[key] = Fault(f"the chat template refuses the messages: {' '.join(str(fault).split())}")
        for key, ids in zip(texts, self._encode(list(texts.values())), strict=True):
            self._prompts[key] = ids
            self._cached += len(ids)
        return faults

    def _rendered(self, key: tuple[Any, ...]) -> str:
        append, *pairs = key
        messages = [{"role": role, "content": content} for role, content in pairs]
        if append:
            # Templates look at what comes before, so the new messages are rendered behind a stand-in for it.
            messages = [{"role": "user", "content": "."}, {"role": "assistant", "content": _EARLIER}, *messages]
        text: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=self._thinking
        )
        if not append:
            return text
        _, mark, after = text.rpartition(_EARLIER)
        end = self._tokenizer.eos_token
        if not mark or not after.startswith(end):
            raise ValueError(f"it does not close a reply with {end!r}, so a conversation cannot grow")
        return after.removeprefix(end)

    def _encode(self, texts: list[str]) -> list[Ids]:
        if not texts:
            return []
        # The template has written every special token already; adding them again would double the first.
        return [tuple(found.ids) for found in self._encoder.encode_batch_fast(texts, add_special_tokens=False)]


def _key(messages: Sequence[Message], append: bool) -> Any:
    """What a prompt is remembered by, or a `Fault` when these are no messages."""
    try:
        key = (append, *[(message["role"], message["content"]) for message in messages])
        if all(type(part) is str for pair in key[1:] for part in pair):
            return key
    except (TypeError, KeyError):
        pass
    return Fault("an observation's messages must be mappings with the texts 'role' and 'content'")
