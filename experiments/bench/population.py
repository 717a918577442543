"""What members of a population cost beside the same rows of one unperturbed model, on the same engine.

    python experiments/bench/population.py [--device gpu] [--part few many wide growth full]

Parts, each of a hybrid with random weights, greedy, without an early stop:

- `few`, `many`, `wide`: 8 or 64 members of rank 4 with four rows each, at width 256, and 64 at width 1024, beside one
  model with as many rows; reading prompts and writing.
- `growth`: the time of a member's decode step while 8, 64 and 256 members are played; `ratio` is 8 members to the most.
- `full`: the time of one materialised member, its making included, beside that of the making and of one unperturbed
  model with as many rows, each timed alone.

`ours` and `theirs` of the whole are the decode of `few`, in tokens/s; `ratio` above 1 means members are faster. What
compilation takes is not in them. On a CPU one core, float32; `--device gpu` takes the shapes of a 4B model in bfloat16
(not run here). One JSON object on stdout.
"""

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sides
from ratio import compared

RANK, ROWS, SIGMA, SEED = 4, 4, 1e-3, 0


@dataclass(frozen=True)
class Case:
    """`members` of `rows` rows each, which read `prompt` tokens (0: they begin with nothing) and write `new` more."""

    members: int
    rows: int
    prompt: int
    new: int


@dataclass(frozen=True)
class Size:
    """Width and layers of a hybrid."""

    width: int
    layers: int


LOW_RANK = {
    "few": {"cpu": (Size(256, 8), Case(8, 4, 64, 65)), "gpu": (Size(2560, 32), Case(8, 4, 256, 129))},
    "many": {"cpu": (Size(256, 8), Case(64, 4, 16, 17)), "gpu": (Size(2560, 32), Case(64, 4, 64, 65))},
    "wide": {"cpu": (Size(1024, 4), Case(64, 4, 8, 9))},
}
GROWTH = {
    "cpu": (Size(256, 4), [Case(members, 4, 0, 16) for members in (8, 64, 256)]),
    "gpu": (Size(2560, 32), [Case(members, 1, 0, 64) for members in (8, 64, 256)]),
}
FULL = {"cpu": (Size(256, 8), Case(1, 32, 64, 65)), "gpu": (Size(2560, 32), Case(1, 64, 256, 129))}


class Bench:
    """One model, its engine for one length, and what it costs to play."""

    def __init__(self, size: Size, case: Case, device: str):
        """Draw weights; nothing is compiled yet."""
        import jax
        import jax.numpy as jnp
        import shapes

        from esopt_jax.config import RolloutConfig
        from esopt_jax.core.master import base_view, make_master
        from esopt_jax.models.load import Model
        from esopt_jax.models.registry import leaf_specs
        from esopt_jax.rollouts.engine import make_engine
        from esopt_jax.rollouts.sampler import make_sampling

        heads = 4 if size.width < 1024 else 8
        shape = {"layers": size.layers, "mlp": 3 * size.width, "heads": heads, "head": size.width // heads}
        arch = shapes.published() if device == "gpu" else shapes.hybrid(size.width, vocab=4096, **shape)
        self.specs = leaf_specs(arch)
        self.dtype = jnp.bfloat16 if device == "gpu" else jnp.float32
        stored = "split" if device == "gpu" else "float32"
        self.master = make_master(shapes.weights(self.specs), specs=self.specs, format=stored)
        self.base = base_view(self.master, specs=self.specs, dtype=self.dtype)
        rollout = RolloutConfig(max_prompt_tokens=max(case.prompt, 64), max_new_tokens=case.new, temperature=0.0)
        model = Model(arch, self.specs, {}, {}, None, (), arch.vocab_size, Path())
        self.engine = make_engine(model, SimpleNamespace(stop_ids=()), rollout=rollout, dtype=self.dtype)
        self.sampling = make_sampling(rollout)
        self.vocab = arch.vocab_size
        self._jax = jax

    def members(self, count: int, plan: str) -> Any:
        """The view of `count` members."""
        import jax.numpy as jnp

        from esopt_jax.core.perturb import perturb_population

        at = {"specs": self.specs, "sigma": SIGMA, "plan": plan, "rank": RANK, "dtype": self.dtype}
        view = perturb_population(SEED, 0, jnp.arange(count, dtype=jnp.int32), self.master, **at)
        return self._jax.block_until_ready(view)

    def play(self, view: Any, case: Case, *, batched: bool) -> dict[str, float]:
        """Seconds of reading and of writing, by the wall and of the processor."""
        shape = (case.members, case.rows) if batched else (1, case.members * case.rows)
        state, took = self._jax.block_until_ready(self.engine.new(shape, False)), {}
        if case.prompt:
            parts = (*self._prompts(shape, case.prompt), self.sampling)
            read = clocked(lambda: self.engine.start(batched, view, state, *parts), self._jax)
            state = read.pop("result")
            took |= {f"read_{clock}": seconds for clock, seconds in read.items()}
        else:
            state = state.replace(done=~state.done)
        steps = self.engine.segment
        write = clocked(lambda: self.engine.write(batched, view, state, steps, self.sampling), self._jax)
        assert int(write.pop("result").written.min()) == case.new
        return took | {f"write_{clock}": seconds for clock, seconds in write.items()}

    def _prompts(self, shape: tuple[int, int], length: int) -> tuple[Any, ...]:
        """What `Engine.start` reads: prompts, who plays, seed and generation."""
        import numpy as np

        from esopt_jax.rollouts.decode import Segment
        from esopt_jax.rollouts.keys import Slots

        tokens = np.random.default_rng(0).integers(5, self.vocab, (*shape, length), np.int32)
        segment = Segment(tokens, np.full(shape, length, np.int32), np.ones(shape, bool))
        return segment, Slots(*np.zeros((4, *shape), np.int32)), np.uint32(SEED), np.int32(0)


def clocked(call: Callable[[], Any], jax: Any) -> dict[str, Any]:
    """The result of a call, and its seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(call())
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "result": result}


def rates(ours: Sequence[dict], theirs: Sequence[dict], phase: str, tokens: int) -> dict[str, Any]:
    """Both sides' tokens a second in one phase."""
    found = {
        clock: compared(*([tokens / t[f"{phase}_{clock}"] for t in side] for side in (ours, theirs)), digits=0)
        for clock in ("wall", "cpu")
    }
    return {**found["wall"], "ratio_cpu_time": found["cpu"]["ratio"], "spread_cpu_time": found["cpu"]["spread"]}


def low_rank(part: str, device: str, rounds: int) -> dict[str, Any] | None:
    """Members beside plain rows; None where a device has no such part."""
    if device not in LOW_RANK[part]:
        return None
    size, case = LOW_RANK[part][device]
    bench = Bench(size, case, device)
    view = bench.members(case.members, "low_rank")
    took: dict[str, list] = {"ours": [], "theirs": []}
    first = time.perf_counter()
    for number in range(rounds + 1):
        for side, batched in (("ours", True), ("theirs", False)):
            one = bench.play(view if batched else bench.base, case, batched=batched)
            took[side] += [one] if number else []  # the first round compiles
        if not number:
            first = time.perf_counter() - first
    rows = case.members * case.rows
    return {
        **dataclasses.asdict(size),
        **dataclasses.asdict(case),
        "decode": rates(**took, phase="write", tokens=rows * (case.new - 1)),
        "prefill": rates(**took, phase="read", tokens=rows * case.prompt),
        "first_round_s": round(first, 1),
    }


def growth(device: str, rounds: int) -> dict[str, Any]:
    """The time of a member's decode step, by the number of members; that of plain rows for the fewest and the most."""
    size, cases = GROWTH[device]
    bench = Bench(size, cases[0], device)
    clock = "write_cpu" if device == "cpu" else "write_wall"

    def steps(views: Sequence[Any], cases: Sequence[Case], *, batched: bool) -> list[float]:
        played = (bench.play(view, case, batched=batched) for view, case in zip(views, cases, strict=True))
        return [took[clock] / case.new / case.members for took, case in zip(played, cases, strict=True)]

    views = [bench.members(case.members, "low_rank") for case in cases]
    ends = [cases[0], cases[-1]]
    rounded = [
        (steps(views, cases, batched=True), steps([bench.base] * 2, ends, batched=False)) for _ in range(rounds + 1)
    ]
    ours, plain = zip(*rounded[1:], strict=True)  # the first round compiles
    ratios = [compared([1 / s[-1] for s in each], [1 / s[0] for s in each], digits=0) for each in (ours, plain)]
    middle = [[round(1e6 * statistics.median(at)) for at in zip(*each, strict=True)] for each in (ours, plain)]
    return {
        **dataclasses.asdict(size),
        "members": [case.members for case in cases],
        "rows": cases[0].rows,
        "step_us_of_a_member": middle[0],
        "step_us_of_its_rows_plain": middle[1],
        "ratio": ratios[0]["ratio"],
        "spread": ratios[0]["spread"],
        "ratio_of_plain_rows": ratios[1]["ratio"],
        "clock": clock.removeprefix("write_"),
    }


def full(device: str, rounds: int) -> dict[str, Any]:
    """One materialised member: made and played, beside the making and the unperturbed rows alone."""
    size, case = FULL[device]
    bench = Bench(size, case, device)
    took: dict[str, list[float]] = {name: [] for name in ("ours", "theirs", "making", "plain")}
    cpu: list[float] = []
    for number in range(rounds + 1):
        whole = clocked(lambda: bench.play(bench.members(1, "full"), case, batched=True), bench._jax)
        making = clocked(lambda: bench.members(1, "full"), bench._jax)
        making.pop("result")
        plain = clocked(lambda: bench.play(bench.base, case, batched=False), bench._jax)
        if number:
            took["ours"].append(whole["wall"])
            took["making"].append(making["wall"])
            took["plain"].append(plain["wall"])
            took["theirs"].append(making["wall"] + plain["wall"])
            cpu.append((making["cpu"] + plain["cpu"]) / whole["cpu"])
    return {
        **dataclasses.asdict(size),
        "rows": case.rows,
        **{name: round(statistics.median(each), 3) for name, each in took.items()},
        "unit": "s a member",
        **{
            key: value
            for key, value in compared(*([1 / t for t in took[s]] for s in ("ours", "theirs")), digits=4).items()
            if key in ("ratio", "spread")
        },
        "ratio_cpu_time": round(statistics.median(cpu), 2),
    }


PARTS: dict[str, Callable[[str, int], Any]] = {
    **{part: partial(low_rank, part) for part in LOW_RANK},
    "growth": growth,
    "full": full,
}


def main() -> None:
    """Measure the parts, print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART")
    args = parser.parse_args()
    os.environ |= sides.ON_GPU if args.device == "gpu" else sides.ONE_THREAD  # read when jax is imported, below
    if args.device == "cpu":
        sides.pin_to_core()
    import jax

    parts = {name: PARTS[name](args.device, args.rounds) for name in args.part}
    head = parts["few"]["decode"] if "few" in parts else {}
    unit = "tokens/s, one core" if args.device == "cpu" else "tokens/s, one GPU"
    print(json.dumps({"name": "population", "unit": unit, **head, **parts, "versions": {"jax": jax.__version__}}))


if __name__ == "__main__":
    main()
