"""Rows that episodes come to and leave, beside rows that wait for the longest episode of their batch.

    python experiments/bench/ragged.py

A random Qwen3.5 of 4 layers and width 128 plays 128 conversations of 1 to 10 turns (10 of each length, and 28 more) on
16 rows. `ours` gives a row that is free to the next episode; `theirs` plays batches of 16 to their end, on the same
programs, prompt lengths and cache. Both sides run in this process, on one core, in turn. `ratio` above 1 means ours has
the higher throughput; the trajectories of both are compared token by token. One JSON object on stdout.
"""

import argparse
import dataclasses
import json
import os
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from ratio import compared

from esopt_jax.config import ESConfig, RolloutConfig
from esopt_jax.models.init import init_params
from esopt_jax.models.load import Model, load_model
from esopt_jax.models.qwen3_5_config import FULL, LINEAR
from esopt_jax.models.registry import leaf_specs, parse_architecture
from esopt_jax.rollouts.chat import load_chat
from esopt_jax.rollouts.engine import make_engine
from esopt_jax.rollouts.population import make_stage, rollout_model
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.rollouts.workers import StepPool
from esopt_jax.types import Observation, Step, Task

ROWS, EPISODES, NEW = 16, 128, 16
ROLLOUT = RolloutConfig(max_turns=10, max_new_tokens=NEW, max_prompt_tokens=400, temperature=1.0)


@dataclass(frozen=True)
class Ragged:
    """Task n is a conversation of `n % 10 + 1` turns."""

    def tasks(self, split: str) -> list[Task]:
        """All of them."""
        return [Task(str(n), n) for n in range(EPISODES)]

    def reset(self, task: Task, seed: int) -> tuple[tuple[int, int], Observation]:
        """The first question."""
        return (task.data % 10, 0), _ask(task.data)

    def step(self, state: tuple[int, int], action: str) -> Step:
        """The next one."""
        last, turn = state
        done = turn == last
        return Step((last, turn + 1), None if done else _ask(turn), float(done), done, {})


def _ask(number: int) -> Observation:
    return Observation(({"role": "user", "content": str(number)},), "append")


def make_model() -> Model:
    """Random weights; the tokenizer is that of the built-in model."""
    known = load_model("builtin:sudoku-4x4")
    config = json.loads((known.folder / "config.json").read_text(encoding="utf-8"))
    config |= {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32, "num_hidden_layers": 4}
    config["rope_parameters"] |= {"partial_rotary_factor": 0.5}
    config |= {"linear_key_head_dim": 32, "linear_value_head_dim": 32, "layer_types": [LINEAR, LINEAR, LINEAR, FULL]}
    arch = parse_architecture(config)
    specs = leaf_specs(arch)
    params = init_params(jax.random.key(0), specs, std=0.1)
    return dataclasses.replace(known, arch=arch, specs=specs, params=params, eos_ids=())


def main() -> None:
    """Play both ways in turn and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when jax first looks for devices, which is below
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    model, environment = make_model(), Ragged()
    chat = load_chat(model.folder, thinking=False)
    engine = make_engine(model, chat, rollout=ROLLOUT, dtype=jnp.float32)
    cases = list(enumerate(environment.tasks("eval")))
    with StepPool(workers=2) as pool:
        stage = make_stage(engine, model, environment, chat, pool, rollout=ROLLOUT, es=ESConfig())

        def play(part):
            return rollout_model(stage, dict(model.params), part, seed=0, sampling=make_sampling(ROLLOUT), rows=ROWS)

        sides = {
            "ours": lambda: play(cases),
            "theirs": lambda: [e for i in range(0, EPISODES, ROWS) for e in play(cases[i : i + ROWS])],
        }
        spoken, seconds = {}, {name: [] for name in sides}
        for number in range(rounds + 1):
            for name, side in sides.items():
                began = time.perf_counter()
                episodes = side()
                if number:  # the first round compiles
                    seconds[name].append(time.perf_counter() - began)
                spoken[name] = [[turn.completion_ids for turn in episode.turns] for episode in episodes]
    tokens = sum(len(ids) for episode in spoken["ours"] for ids in episode)
    speeds = {name: [tokens / each for each in took] for name, took in seconds.items()}
    result = {
        "name": "ragged",
        "unit": "tokens/s, one core",
        **compared(speeds["ours"], speeds["theirs"], digits=0),
        "same_trajectories": spoken["ours"] == spoken["theirs"],
        "versions": {"jax": jax.__version__},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
