"""A random agent small enough for tests, as a Hugging Face folder, and environments it can learn or that break."""

from __future__ import annotations

import json
from pathlib import Path

CONFIG = {
    "model_type": "qwen3_5_text",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "layer_types": ["full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "initializer_range": 0.3,
    "eos_token_id": 0,
}
CHARACTERS = "\n?!abcdefgh0123456789"
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}<end>{% endfor %}{% if add_generation_prompt %}\n{% endif %}"
)

EVEN = '''
from esopt_jax.types import Observation, Step, Task


class Even:
    """Two turns; the reward is 1 when the last reply starts with an even digit."""

    def tasks(self, split):
        return [Task(f"{split}-{i}", "abcdefgh"[i % 8]) for i in range(16 if split == "train" else 64)]

    def reset(self, task, seed):
        return (task.data, 0), self._ask(task.data)

    def step(self, state, action):
        letter, turn = state
        right = action[:1] in tuple("02468")
        info = {"invalid": not action[:1].isdigit()}
        return Step((letter, turn + 1), None if turn else self._ask("?"), float(turn and right), bool(turn), info)

    def _ask(self, text):
        return Observation(({"role": "user", "content": text},))
'''

BROKEN = (
    EVEN
    + '''
import time


class Broken(Even):
    """Breaks one task in `every`, of the split `only` if that is given. `how`: raise, hang or nan."""

    def __init__(self, how="raise", every=10, only=""):
        self.how, self.every, self.only = how, every, only

    def tasks(self, split):
        breaks = [self.only in ("", split) and i % self.every == 0 for i in range(16 if split == "train" else 64)]
        return [Task(f"{split}-{i}", "!" if broken else "a") for i, broken in enumerate(breaks)]

    def step(self, state, action):
        if state[0] != "!":
            return super().step(state, action)
        if self.how == "hang":
            time.sleep(3600)
        if self.how == "raise":
            raise ConnectionError("service\\nlost")
        return Step(state, None, float("nan"), True, {})
'''
)


def write_model(folder: Path, *, seed: int = 0) -> Path:
    """A random model with one token a character."""
    import jax
    import numpy as np

    from esopt_jax.models.init import init_params
    from esopt_jax.models.layout import join_tensors
    from esopt_jax.models.registry import leaf_specs, parse_architecture
    from esopt_jax.models.save import write_folder

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    _write_tokenizer(folder)
    arch = parse_architecture(CONFIG)
    specs = leaf_specs(arch)
    params = init_params(jax.random.key(seed), specs, std=arch.initializer_range)
    leaves = {path: np.asarray(leaf) for path, leaf in params.items()}
    write_folder(folder, join_tensors(leaves, specs), source=folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<end>": 0, "<unk>": 1, **{c: i for i, c in enumerate(CHARACTERS, 2)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", chat_template=TEMPLATE)
    fast.save_pretrained(folder)


def settings(model: Path, environment: str, **overrides: object) -> dict[str, object]:
    """`section.key` -> value of a run that takes seconds."""
    return {
        "model.path": str(model),
        "env.name": environment,
        "es.population_size": 8,
        "es.generations": 2,
        "es.sigma": 0.1,
        "es.alpha": 0.1,
        "rollout.cases": 8,
        "rollout.max_new_tokens": 2,
        "rollout.max_prompt_tokens": 16,
        "eval.every": 0,
        "eval.episodes": 16,
        "eval.repeats": 1,
        "log.progress": "plain",
        **{key.replace("__", "."): value for key, value in overrides.items()},
    }
