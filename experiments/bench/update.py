"""The update and the perturbation of a whole model beside the same in plain PyTorch.

    pip install -e '.[parity]' && python experiments/bench/update.py [--device gpu]

A hybrid of 100 million weights, N = 32. `ours` updates a `split` master; `theirs` holds bfloat16 weights, draws each
member's float32 noise leaf by leaf in chunks of 8,388,608 from a generator of that member and leaf, sums them in
float32, rounds the sum once and adds it: one pass of noise a member, no more. A perturbation is one bfloat16 copy of
all weights plus noise on our side, and noise added and then taken away again, as each member costs there, on the other.
Seconds; `ratio` above 1 means ours is faster, `ratio_to_best` is their fastest round beside our median and
`ratio_of_best` beside our fastest. `extra_mb` is the peak memory beyond what the weights hold (and, for a perturbation
of ours, its copy). Compilation is in `compile_s` alone. `--device gpu` takes the shapes of a 4B model (not run here).
One JSON object on stdout.
"""

import argparse
import json
import os
import statistics
from typing import Any

import sides
from ratio import compared

MEMBERS, SIGMA, ALPHA, SEED, CHUNK = 32, 1e-3, 5e-4, 20260701, 8_388_608
JOBS = ("update", "perturb")


def table(device: str) -> Any:
    """The leaves of the model."""
    import shapes

    from esopt_jax.models.registry import leaf_specs

    small = {"width": 768, "layers": 12, "vocab": 31744, "mlp": 2048, "heads": 4, "head": 128}
    return leaf_specs(shapes.published() if device == "gpu" else shapes.hybrid(**small))


def shaped(count: int) -> list[float]:
    """A fitness, shaped: mean 0, standard deviation 1."""
    raw = [float((7 * i) % count) for i in range(count)]
    return [(x - statistics.fmean(raw)) / statistics.pstdev(raw) for x in raw]


def ours(device: str, members: int) -> None:
    """`make_update` and `perturb` of this package."""
    import jax
    import jax.numpy as jnp
    import shapes

    from esopt_jax.core.master import master_leaf
    from esopt_jax.core.noise import noise_key
    from esopt_jax.core.perturb import perturb
    from esopt_jax.core.update import make_update
    from esopt_jax.training.freed_memory import share_one_heap

    share_one_heap()
    specs = table(device)
    base = shapes.weights(specs)
    held = {"master": {s.path: master_leaf(base.pop(s.path), spec=s, format="split") for s in specs}}
    update = make_update(specs, population_size=members, plan="full", rank=1)
    fitness = jnp.array(shaped(members), jnp.float32)
    at = {"specs": specs, "sigma": SIGMA, "plan": "full", "rank": 1, "dtype": jnp.bfloat16}

    def do_update() -> None:
        held["master"], stats = update(SEED, 0, held["master"], fitness, ALPHA)
        jax.block_until_ready((held["master"], stats))

    def do_perturb() -> None:  # the copy goes before the next one comes, as in a run
        jax.block_until_ready(perturb(noise_key(SEED, 0, 0), held["master"], **at))

    found = {"weights": sum(s.size for s in specs), "leaves": len(specs), "versions": {"jax": jax.__version__}}
    peak = sides.JaxPeak() if device == "gpu" else sides.ResidentPeak()
    sides.serve({"update": do_update, "perturb": do_perturb}, found, peak, warm=JOBS)


def theirs(device: str, members: int) -> None:
    """Noise added to the weights in place, and taken away again."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # only the table of leaves is read
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    home = torch.device("cuda" if device == "gpu" else "cpu")
    leaves = [torch.randn(s.shape, device=home, dtype=torch.bfloat16).mul_(0.02) for s in table(device)]
    weights = [ALPHA / members * w for w in shaped(members)]

    def generator(leaf: int, member: int) -> torch.Generator:
        return torch.Generator(device=home).manual_seed((SEED + member) ^ (leaf * 0x9E3779B9))

    def chunks(leaf: torch.Tensor) -> Any:
        return leaf.view(-1).split(CHUNK)

    def apply(scale: float) -> None:
        for i, leaf in enumerate(leaves):
            draw = generator(i, 0)
            for part in chunks(leaf):
                noise = torch.randn(part.shape, generator=draw, device=home)
                part.add_(noise.to(part.dtype), alpha=scale)

    def do_perturb() -> None:
        apply(SIGMA)
        apply(-SIGMA)
        finish()

    def do_update() -> None:
        for i, leaf in enumerate(leaves):
            draws = [generator(i, member) for member in range(members)]
            for part in chunks(leaf):
                total = torch.zeros(part.shape, device=home)
                for draw, weight in zip(draws, weights, strict=True):
                    total.add_(torch.randn(part.shape, generator=draw, device=home), alpha=weight)
                part.add_(total.to(part.dtype))
        finish()

    def finish() -> None:
        if device == "gpu":
            torch.cuda.synchronize()

    peak = sides.TorchPeak() if device == "gpu" else sides.ResidentPeak()
    with torch.inference_mode():
        jobs, found = {"update": do_update, "perturb": do_perturb}, {"versions": {"torch": torch.__version__}}
        sides.serve(jobs, found, peak, warm=["perturb"])


def measured(job: str, took: dict[str, list[sides.Took]], first: dict[str, Any], copy: float) -> dict[str, Any]:
    """What the rounds of one job say; `copy` is what our side makes and keeps, in MB."""
    mine, other = ([each["wall"] for each in took[name]] for name in ("ours", "theirs"))
    speeds = compared([1 / x for x in mine], [1 / x for x in other], digits=4)
    cpu = statistics.median(t["cpu"] / o["cpu"] for o, t in zip(took["ours"], took["theirs"], strict=True))
    extra = {name: max(each["extra"] for each in rounds) / 1e6 for name, rounds in took.items()}
    return {
        **speeds,
        "ours": round(statistics.median(mine), 3),
        "theirs": round(statistics.median(other), 3),
        "ratio_cpu_time": round(cpu, 2),
        "ratio_to_best": round(min(other) / statistics.median(mine), 2),
        "ratio_of_best": round(min(other) / min(mine), 2),
        "best": {"ours": round(min(mine), 3), "theirs": round(min(other), 3)},
        "extra_mb": {"ours": round(extra["ours"] - copy), "theirs": round(extra["theirs"])},
        "compile_s": round(max(0.0, first[job] - statistics.median(mine)), 1),
    }


def main() -> None:
    """Start both sides, alternate between them, print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--side", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        {"ours": ours, "theirs": theirs}[args.side](args.device, args.members)
        return
    if args.device == "cpu":
        sides.pin_to_core()
    each = ["--device", args.device, "--members", str(args.members), "--side"]
    running = {name: sides.Side(__file__, [*each, name], device=args.device) for name in ("ours", "theirs")}
    took: dict[str, dict[str, list]] = {job: {name: [] for name in running} for job in JOBS}
    for _ in range(args.rounds):
        for job in JOBS:
            for name, side in running.items():
                took[job][name].append(side.do(job))
    mine, other = (running[name].found for name in ("ours", "theirs"))
    for side in running.values():
        side.end()
    copies = {"update": 0.0, "perturb": 2 * mine["weights"] / 1e6}  # bfloat16
    jobs = {job: measured(job, took[job], mine["first_s"], copies[job]) for job in JOBS}
    result = {
        "name": "update",
        "unit": "s, one core" if args.device == "cpu" else "s, one GPU",
        **jobs["update"],
        "perturb": jobs["perturb"],
        "shape": {"weights": mine["weights"], "leaves": mine["leaves"], "members": args.members, "master": "split"},
        "versions": mine["versions"] | other["versions"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
