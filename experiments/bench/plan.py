"""Time and peak memory of `esopt plan`, as a user meets them.

    python experiments/bench/plan.py [PRESET] [--whole]

One process a round, from its start to its end, with no compile cache; the median of the rounds is reported. The aim is
60 s and 4 GB for a model of 27 billion weights on four pretended devices, on two cores. One JSON object on stdout.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time


def main() -> None:
    """Run the command so often and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", nargs="?", default="h100x4-qwen3.5-27b")
    parser.add_argument("--whole", action="store_true", help="compile all layers")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    command = [sys.executable, "-m", "esopt_jax.cli.main", "plan", args.preset, "--json"]
    command += ["--whole"] if args.whole else []
    seconds = []
    for _ in range(args.rounds):
        began = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds.append(time.perf_counter() - began)
    plan = json.loads(done.stdout)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "name": "plan",
        "preset": args.preset,
        "whole": args.whole,
        "seconds": round(statistics.median(seconds), 1),
        "rounds": [round(s, 1) for s in seconds],
        "cpu_seconds": round((children.ru_utime + children.ru_stime) / args.rounds, 1),
        "peak_gb": round(children.ru_maxrss * 1024 / 1e9, 2),
        "cpus": len(os.sched_getaffinity(0)),
        "fits": plan["fits"],
        "disagreements": plan["compiled"]["disagreements"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
