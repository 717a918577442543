"""What a generation costs by population size, and what dividing it among devices costs.

    python experiments/bench/scaling.py [--device gpu] [--plan full]

Members play 4 conversations of 2 turns, questions of about 27 tokens and replies of 16, on a random Qwen3.5 of 4 layers
and width 256 in float32; then the weights are updated, all at rank 4. `ours` is members/s of a whole generation of the
largest population, `theirs` that of the smallest: a `ratio` of 1 means that cost is proportional to members, above 1
that a member of a larger population costs less. `populations` has the seconds of each.

`devices` has the same 16 members on 1 and on 4 devices that are made of one CPU core. They run one after the other, so
that it says what dividing costs, in CPU seconds, and nothing of what it gains: that takes a core a device, which was
not measured. `--device gpu`: a 4B model in bfloat16 on one device (not run here). One JSON object on stdout.
"""

import argparse
import json
import os
import statistics
from contextlib import ExitStack
from typing import Any

import sides
from ratio import compared

POPULATIONS, DEVICES, DIVIDED = (4, 16, 64), (1, 4), 16
CASES, TURNS, NEW, LETTERS, RANK, LAYERS = 4, 2, 16, 16, 4, 4


def ours(device: str, plan: str, devices: int) -> None:
    """Generations of all populations; on several devices, of the one that is divided."""
    if device == "cpu":  # read when jax first looks for devices
        os.environ["XLA_FLAGS"] += f" --xla_force_host_platform_device_count={devices}"
    import dialogue
    import jax
    import jax.numpy as jnp
    import shapes
    from generation import Generation, Phases

    from esopt_jax.config import ESConfig, RolloutConfig
    from esopt_jax.models.sharding import make_mesh
    from esopt_jax.models.sizes import PUBLISHED
    from esopt_jax.training.freed_memory import share_one_heap

    share_one_heap()
    dtype = jnp.bfloat16 if device == "gpu" else jnp.float32
    sizes = PUBLISHED[shapes.GPU] if device == "gpu" else {**dialogue.SMALL, "num_hidden_layers": LAYERS}
    model = dialogue.random_model(sizes, dtype=dtype)
    mesh = make_mesh((devices, 1)) if devices > 1 else None
    room = TURNS * (NEW + LETTERS + 14)
    rollout = RolloutConfig(max_turns=TURNS, max_new_tokens=NEW, max_prompt_tokens=room, temperature=1.0)
    phases = Phases()
    phases.begin()
    at_once = 4 if device == "gpu" and plan == "full" else 0
    with ExitStack() as scope:
        jobs = {
            str(members): Generation(
                model,
                dialogue.Dialogue(TURNS, LETTERS),
                cases=CASES,
                rollout=rollout,
                es=ESConfig(population_size=members, plan=plan, rank=RANK, members_per_pass=at_once),
                dtype=dtype,
                phases=phases,
                scope=scope,
                mesh=mesh,
            )
            for members in (POPULATIONS if devices == 1 else (DIVIDED,))
        }
        found = {"weights": sum(spec.size for spec in model.specs), "versions": {"jax": jax.__version__}}
        sides.serve(jobs, found, phases)


def cost(rounds: list[sides.Took], members: int) -> dict[str, Any]:
    """Medians of one job."""
    wall, cpu = (statistics.median(each[clock] for each in rounds) for clock in ("wall", "cpu"))
    parts = rounds[0]["extra"]
    return {
        "s": round(wall, 3),
        "cpu_s": round(cpu, 3),
        "cpu_ms_a_member": round(1000 * cpu / members, 1),
        "phases": {part: round(statistics.median(each["extra"][part] for each in rounds), 3) for part in parts},
    }


def main() -> None:
    """Play all sizes in turn, then print how they compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--plan", choices=("low_rank", "full"), default="low_rank")
    parser.add_argument("--side", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        ours(args.device, args.plan, args.side)
        return
    if args.device == "cpu":
        sides.pin_to_core()
    each, counts = ["--device", args.device, "--plan", args.plan, "--side"], DEVICES if args.device == "cpu" else (1,)
    running = {count: sides.Side(__file__, [*each, str(count)], device=args.device) for count in counts}
    jobs = [(1, members) for members in POPULATIONS] + [(count, DIVIDED) for count in counts if count > 1]
    took: dict[tuple[int, int], list[sides.Took]] = {job: [] for job in jobs}
    for _ in range(args.rounds):
        for count, members in jobs:
            took[count, members].append(running[count].do(str(members)))
    found = running[1].found
    for side in running.values():
        side.end()
    small, large = POPULATIONS[0], POPULATIONS[-1]
    speeds = {n: [n / t["wall"] for t in took[1, n]] for n in (small, large)}
    cpu = [(t["cpu"] / small) / (o["cpu"] / large) for o, t in zip(took[1, large], took[1, small], strict=True)]
    result = {
        "name": "scaling",
        "unit": "members/s of a generation",
        **compared(speeds[large], speeds[small], digits=2),
        "ratio_cpu_time": round(statistics.median(cpu), 2),
        "populations": {str(n): cost(took[1, n], n) for n in POPULATIONS},
        "devices": {str(count): cost(took[count, DIVIDED], DIVIDED) for count in counts},
        "compile_s": found["first_s"],
        "shape": {"plan": args.plan, "cases": CASES, "turns": TURNS, "new": NEW, "weights": found["weights"]},
        "versions": found["versions"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
