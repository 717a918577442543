"""Conversations whose memory is kept, beside the same engine reading the whole history again every turn.

    python experiments/bench/multiturn.py [--device gpu]

4 conversations of 30 turns, each a question of 16 letters (about 27 tokens with its chat marks) and a reply of 16
tokens, played by a random Qwen3.5 of 8 layers and width 256 in float32. Both sides run in this process, on one core, in
turn; they share programs and cache length, and a long history is read in programs of its padded length. `ratio` above 1
means ours has the higher throughput over the episode.

`reads` are the tokens that went through the model over those in the conversations, less the last of each reply that
nobody read; `padded` counts the padding of prompts as well. `turn` is what turns 3 and 30 took, and their ratio.
`--device gpu` takes the shapes of a 4B model in bfloat16 (not run here). One JSON object on stdout.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dialogue
import jax
import jax.numpy as jnp
import shapes
import sides
from ratio import compared

from esopt_jax.config import ESConfig, RolloutConfig
from esopt_jax.models.sizes import PUBLISHED
from esopt_jax.rollouts.driver import Start, play
from esopt_jax.rollouts.policy import DevicePolicy, padded_length
from esopt_jax.rollouts.population import Stage
from esopt_jax.rollouts.sampler import make_sampling
from esopt_jax.rollouts.seats import Episode, Ids

TURNS, CASES, NEW, LETTERS = 30, 4, 16, 16
EARLY, LATE = 3, 30


@dataclass
class Meter:
    """What an episode cost: tokens by kind, and (wall, cpu) seconds of every turn on the device."""

    read: int = 0
    padded: int = 0
    turns: list[tuple[float, float]] = field(default_factory=list)


class Metered(DevicePolicy):
    """Keeps the memory of its rows; all of them begin a turn together."""

    def meter(self, meter: Meter) -> "Metered":
        """Count into `meter`."""
        self._meter = meter
        return self

    def begin(self, starts: Sequence[Start]) -> None:
        """As the policy does."""
        self._began = time.perf_counter(), time.process_time()
        width = padded_length(max(len(s.prompt) for s in starts), self._engine.spec.capacity)
        self._meter.read += sum(len(s.prompt) for s in starts)
        self._meter.padded += width * len(starts)
        super().begin(starts)

    def proceed(self) -> dict[int, Ids]:
        """As the policy does."""
        replies = super().proceed()
        wall, cpu = self._began
        self._meter.turns.append((time.perf_counter() - wall, time.process_time() - cpu))
        written = sum(len(ids) - 1 for ids in replies.values())  # the last one is read with the next prompt
        self._meter.read += written
        self._meter.padded += written
        return replies


class Rereading(Metered):
    """Forgets everything after a turn, and is given the whole conversation in the next."""

    def begin(self, starts: Sequence[Start]) -> None:
        """Read all that was said."""
        if starts[0].fresh:
            self._said: dict[int, Ids] = {}
        for start in starts:
            self._said[start.row] = self._said.get(start.row, ()) + start.prompt
        super().begin([s._replace(prompt=self._said[s.row], fresh=True) for s in starts])

    def proceed(self) -> dict[int, Ids]:
        """Write, and remember it as text is remembered."""
        replies = super().proceed()
        for row, ids in replies.items():
            self._said[row] += ids[:-1]
        return replies


def main() -> None:
    """Play both ways in turn and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    args = parser.parse_args()
    if args.device == "cpu":
        os.environ.update(sides.ONE_THREAD)  # read when jax first looks for devices, which is below
        jax.config.update("jax_platforms", "cpu")
        sides.pin_to_core()
    dtype = jnp.bfloat16 if args.device == "gpu" else jnp.float32
    model = dialogue.random_model(PUBLISHED[shapes.GPU] if args.device == "gpu" else dialogue.SMALL, dtype=dtype)
    environment = dialogue.Dialogue(args.turns, LETTERS)
    room = args.turns * (NEW + LETTERS + 14)
    rollout = RolloutConfig(max_turns=args.turns, max_new_tokens=NEW, max_prompt_tokens=room, temperature=1.0)
    kinds: dict[str, type[Metered]] = {"ours": Metered, "theirs": Rereading}
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    with dialogue.staged(model, environment, rollout=rollout, es=ESConfig(), dtype=dtype) as stage:
        first = {name: episode(stage, model.params, kind)["wall"] for name, kind in kinds.items()}
        for _ in range(args.rounds):
            for name, kind in kinds.items():
                rounds[name].append(episode(stage, model.params, kind))
    speeds = {name: [each["tokens"] / each["wall"] for each in took] for name, took in rounds.items()}
    cpu = statistics.median(t["cpu"] / o["cpu"] for o, t in zip(rounds["ours"], rounds["theirs"], strict=True))
    result = {
        "name": "multiturn",
        "unit": "tokens/s, one core" if args.device == "cpu" else "tokens/s, one GPU",
        **compared(speeds["ours"], speeds["theirs"], digits=0),
        "ratio_cpu_time": round(cpu, 2),
        "reads": {name: took[0]["reads"] for name, took in rounds.items()},
        "padded": {name: took[0]["padded"] for name, took in rounds.items()},
        "turn": {name: turn_costs(took, args.turns) for name, took in rounds.items()},
        "same_tokens": alike(rounds["ours"][0]["spoken"], rounds["theirs"][0]["spoken"]),
        "compile_s": {n: round(first[n] - statistics.median(e["wall"] for e in rounds[n]), 1) for n in kinds},
        "shape": {"turns": args.turns, "cases": CASES, "new": NEW, "tokens": rounds["ours"][0]["tokens"] // CASES},
        "versions": {"jax": jax.__version__},
    }
    print(json.dumps(result))


def episode(stage: Stage, params: Any, kind: type[Metered]) -> dict[str, Any]:
    """All conversations, once, and what they took."""
    meter, sampling = Meter(), make_sampling(RolloutConfig(temperature=1.0))
    tasks = stage.environment.tasks("eval")[:CASES]
    lane = [Episode(member=-1, case=i, episode=0, task=task, seed=0) for i, task in enumerate(tasks)]
    wall, cpu = time.perf_counter(), time.process_time()
    rest = {"sampling": sampling, "seed": 0, "generation": 0, "batched": False}
    policy = kind(stage.engine, [dict(params)], (1, CASES), **rest).meter(meter)
    around = {"chat": stage.chat, "pool": stage.pool, "limits": stage.limits}
    (played,) = play(policy, stage.environment, [lane], width=CASES, **around)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    spoken = [[turn.completion_ids for turn in each.turns] for each in played]
    tokens = sum(len(turn.prompt_ids) + len(turn.completion_ids) for each in played for turn in each.turns)
    unread = CASES  # the last token of each conversation
    return {
        "wall": wall,
        "cpu": cpu,
        "tokens": tokens,
        "reads": round(meter.read / (tokens - unread), 3),
        "padded": round(meter.padded / (tokens - unread), 2),
        "turns": meter.turns,
        "spoken": spoken,
    }


def turn_costs(rounds: list[dict[str, Any]], turns: int) -> dict[str, Any]:
    """Median milliseconds of an early and a late turn, and how many times the early one the late one takes."""
    early, late = min(EARLY, turns) - 1, min(LATE, turns) - 1
    found: dict[str, Any] = {}
    for clock, name in enumerate(("wall", "cpu")):
        pairs = [(each["turns"][early][clock], each["turns"][late][clock]) for each in rounds]
        found[f"{name}_ms"] = [round(1000 * statistics.median(side), 1) for side in zip(*pairs, strict=True)]
        found[name] = round(statistics.median(b / a for a, b in pairs), 2)
    return found


def alike(ours: list[list[Ids]], theirs: list[list[Ids]]) -> float:
    """Share of the reply tokens that are the same on both sides; a sum in another order may sample another token."""
    pairs = [
        (a, b)
        for x, y in zip(ours, theirs, strict=True)
        for p, q in zip(x, y, strict=True)
        for a, b in zip(p, q, strict=False)
    ]
    return round(sum(a == b for a, b in pairs) / len(pairs), 3)


if __name__ == "__main__":
    main()
