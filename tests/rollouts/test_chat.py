"""Messages to tokens and back, without a doubled special token, a default for thinking, or a rewritten history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from esopt_jax.errors import EsoptError
from esopt_jax.rollouts.chat import Chat, load_chat
from esopt_jax.rollouts.workers import Fault


def user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def spell(chat: Chat, ids: tuple[int, ...]) -> str:
    return chat._tokenizer.decode(list(ids))


def test_a_fresh_prompt_is_the_template_and_nothing_more(chat, tokenizer_folder):
    ids = chat.prompts([user("12.4")])[0]
    assert spell(chat, ids) == "<|im_start|>user\n12.4<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    tokenizer = chat._tokenizer
    assert tokenizer.bos_token_id not in ids  # although encoding text adds one by default:
    assert tokenizer("x")["input_ids"][0] == tokenizer.bos_token_id
    thinking = load_chat(tokenizer_folder, thinking=True).prompts([user("12.4")])[0]
    assert spell(chat, thinking).endswith("assistant\n<think>\n")


def test_prompts_are_remembered_and_equal_to_those_rendered_alone(tokenizer_folder):
    chat = load_chat(tokenizer_folder, thinking=False)
    rendered = []
    original = chat._rendered
    chat._rendered = lambda key: rendered.append(key) or original(key)
    batch = chat.prompts([user("a"), user("b"), user("a")])
    assert batch[0] == batch[2] != batch[1]
    assert chat.prompts([user("b"), user("a")]) == [batch[1], batch[0]]
    assert len(rendered) == 2


def test_a_conversation_grows_by_what_the_template_would_have_written(chat):
    first = chat.prompts([user("1")])[0]
    reply = (*chat._encode(["ok"])[0], chat.end_of_turn)
    more = chat.prompts([({"role": "user", "content": "2"}, {"role": "tool", "content": "3"})], append=True)[0]
    assert spell(chat, first + reply + more) == (
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nok<|im_end|>\n"
        "<|im_start|>user\n2<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert more != chat.prompts([({"role": "user", "content": "2"}, {"role": "tool", "content": "3"})])[0]


def test_text_loses_its_end_and_nothing_else(chat):
    encode = chat._encode
    assert chat.text((*encode(["set 1 2 3"])[0], chat.end_of_turn)) == "set 1 2 3"
    assert chat.text(encode(["set 1"])[0]) == "set 1"
    # The padding token equals no end id here, but an end id inside a reply would be content all the same.
    assert chat.text((*encode(["a<|im_end|>b"])[0], chat.end_of_turn)) == "a<|im_end|>b"
    assert chat.text(encode(["t</think>set 1"])[0]) == "t</think>set 1"
    assert chat.text((chat.end_of_turn,)) == ""


def test_end_ids_are_the_union_of_model_and_tokenizer(tokenizer_folder):
    chat = load_chat(tokenizer_folder, thinking=False, eos_ids=(5, 3))
    assert chat.stop_ids == tuple(sorted((3, 5, chat.end_of_turn)))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (({"role": "wizard", "content": "x"},), "unknown role"),
        (({"role": "user"},), "'role' and 'content'"),
        (({"role": "user", "content": 3},), "'role' and 'content'"),
        (3, "'role' and 'content'"),
        (({"role": "user", "content": "\ud800"},), "surrogates not allowed"),
    ],
)
def test_messages_that_cannot_be_rendered_are_faults_of_their_own(chat, messages, reason):
    good, bad = chat.prompts([user("1"), messages])
    assert isinstance(good, tuple)
    assert isinstance(bad, Fault)
    assert reason in bad.reason


def test_a_folder_without_tokenizer_template_or_end_is_refused(tokenizer_folder, tmp_path):
    with pytest.raises(EsoptError, match=r"has no tokenizer\.json"):
        load_chat(tmp_path, thinking=False)
    for name, change, match in (
        ("template", {"chat_template": None}, "no chat template"),
        ("end", {"eos_token": None}, "no eos_token"),
        ("damaged", {"eos_token": 5}, "no tokenizer can be read"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokenizer.json").write_text((tokenizer_folder / "tokenizer.json").read_text())
        settings = json.loads((tokenizer_folder / "tokenizer_config.json").read_text())
        settings["chat_template"] = Path(tokenizer_folder / "chat_template.jinja").read_text()
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **change}))
        with pytest.raises(EsoptError, match=match):
            load_chat(folder, thinking=False)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EsoptError, match="no tokenizer can be read"):
        load_chat(tmp_path, thinking=False)


def test_memory_of_prompts_is_bounded(tokenizer_folder, monkeypatch):
    monkeypatch.setattr("esopt_jax.rollouts.chat.CACHED_TOKENS", 100)
    chat = load_chat(tokenizer_folder, thinking=False)
    for number in range(50):
        assert chat.prompts([user(str(number)), user("same")])[1] == chat.prompts([user("same")])[0]
    assert len(chat._prompts) < 10
