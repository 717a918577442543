"""The quickstart for 5 seeds, and the same with shuffled rewards, which must not learn.

    python experiments/sudoku/quickstart/run.py --out runs/quickstart

Hardware: 2 CPU cores, about 15 minutes. Every run is its own `esopt train` process, one after the other. Leaves
`es-<seed>/` and `shuffled-<seed>/` with `summary.json` and `metrics.jsonl` (the run folders lie beside, under `runs/`),
the table `results.md` and the figure `curve.png`. What lies committed in this folder is the output of this command.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ARMS = {
    "es": [],
    "shuffled": ["es.control=shuffled_rewards", "eval.by_sampling=false", "eval.best_random=false"],
}
KEPT = ("summary.json", "metrics.jsonl", "config.yaml", "env.json")


def main() -> None:
    """Run what is not there yet, then write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/quickstart"))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    for arm, settings in ARMS.items():
        for seed in range(args.seeds):
            folder = args.out / f"{arm}-{seed}"
            if not (folder / "summary.json").is_file():
                train(args.out / "runs" / f"{arm}-{seed}", folder, [f"es.seed={seed}", *settings])
    found = {arm: read(args.out, arm, args.seeds) for arm in ARMS}
    (args.out / "results.md").write_text(table(found), encoding="utf-8")
    draw(args.out, args.seeds)
    print(table(found))


def train(run_dir: Path, folder: Path, settings: list[str]) -> None:
    """One run in a process of its own, and a copy of what the table needs."""
    shutil.rmtree(run_dir, ignore_errors=True)  # what an interrupted run left
    command = [sys.executable, "-m", "esopt_jax.cli.main", "train", "quickstart", "--run-dir", str(run_dir)]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copy(run_dir / name, folder / name)


def read(out: Path, arm: str, seeds: int) -> list[dict]:
    """The summaries of an arm."""
    return [json.loads((out / f"{arm}-{seed}" / "summary.json").read_text()) for seed in range(seeds)]


def table(found: dict[str, list[dict]]) -> str:
    """Held-out solve rates with 95 % intervals, one row a seed, as Markdown."""
    members = found["es"][0]["population_size"]
    rows = [
        "| seed | base, best of 3 samplings | after ES "
        f"| best of {members} perturbations | shuffled rewards | wall, s |",
        "|---|---|---|---|---|---|",
    ]
    for es, shuffled in zip(found["es"], found["shuffled"], strict=True):
        base = max(es["base_by_sampling"].values(), key=lambda e: e["mean"])
        cells = [rate(base), rate(es["final"]), rate(es["best_random"]), rate(shuffled["final"])]
        rows.append(f"| {es['es_seed']} | " + " | ".join(cells) + f" | {es['wall_s']:.0f} |")
    columns = [
        [max(e["mean"] for e in s["base_by_sampling"].values()) for s in found["es"]],
        [s["final"]["mean"] for s in found["es"]],
        [s["best_random"]["mean"] for s in found["es"]],
        [s["final"]["mean"] for s in found["shuffled"]],
    ]
    cells = [f"{statistics.mean(c):.3f} ± {statistics.pstdev(c):.3f}" for c in columns]
    rows.append("| mean ± sd | " + " | ".join(cells) + " | |")
    return "\n".join(rows) + "\n"


def rate(evaluation: dict) -> str:
    """`0.861 (0.830 to 0.891)`."""
    low, high = evaluation["ci95"]
    return f"{evaluation['mean']:.3f} ({low:.3f} to {high:.3f})"


def draw(out: Path, seeds: int) -> None:
    """Mean fitness of the population over generations, every seed, learning and with shuffled rewards."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    for arm, colour, label in (("es", "C0", "evolution strategies"), ("shuffled", "C7", "shuffled rewards (control)")):
        for seed in range(seeds):
            lines = (out / f"{arm}-{seed}" / "metrics.jsonl").read_text().splitlines()
            fitness = [row["fitness/mean"] for row in map(json.loads, lines) if "fitness/mean" in row]
            axes.plot(range(1, len(fitness) + 1), fitness, color=colour, alpha=0.7, label=label if seed == 0 else None)
    axes.set(xlabel="generation", ylabel="solve rate of the population\n(training puzzles)", ylim=(0, 1))
    axes.set_title("4x4 Sudoku, six blanks, one move a turn: 5 seeds on 2 CPU cores", fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out / "curve.png", dpi=120)


if __name__ == "__main__":
    main()
