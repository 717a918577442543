"""The README's table of speed, from what the benchmarks found.

    python experiments/bench/table.py                        from the files in results/
    python experiments/bench/table.py --run decode update    run these first, and keep what they print there
    python experiments/bench/table.py --run --device gpu     all that know a GPU
    python experiments/bench/update.py --rounds 9 | python experiments/bench/table.py --keep

A file of `results/` is what a benchmark printed, the day, and the hardware it ran on. The table is Markdown, on stdout;
a benchmark without a file has a line that says so, and one that fails leaves its file as it was.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
GPU = ("decode", "population", "multiturn", "update", "end_to_end", "scaling")
"""Those that take `--device gpu`."""
ROWS = {
    "decode": "tokens written, batch 32, beside transformers' `generate`",
    "population.low_rank": "{members} members of rank 4 x {rows} rows, width {width}, beside as many rows of one model",
    "population.growth": "cost of a member's decode, the smallest population over the largest",
    "population.full": "a materialised member beside its copy and one model, each timed alone",
    "multiturn": "30 turns with memory, beside reading the history again each turn",
    "ragged": "lengths 1:10, rows that are refilled, beside batches that wait",
    "update": "update of 100 million weights, N = 32, `split` master, beside PyTorch",
    "update.perturb": "perturbing a member, beside PyTorch's noise added and taken away",
    "end_to_end": "whole generation, 16 members x 8 episodes, full plan, beside the published procedure",
    "end_to_end.low_rank": "the same in the low-rank plan",
    "scaling": "members/s of a generation, 64 members beside 4",
    "memory": "peak memory of training: what is planned and 512 MB, over what was taken",
}
"""What each part of a result says; one that is not here is a detail, or has a table of its own."""
HEAD = "| speed | ours | theirs | ratio (quartiles) | by CPU time | |\n|---|---|---|---|---|---|"


def main() -> None:
    """Run what is asked for, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", nargs="*", metavar="NAME", help="benchmarks to run first; without names, all")
    parser.add_argument("--keep", action="store_true", help="keep what a benchmark has printed, given on stdin")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    args = parser.parse_args()
    every = GPU if args.device == "gpu" else list(dict.fromkeys(path.partition(".")[0] for path in ROWS))
    failed = []
    for name in every if args.run == [] else args.run or []:
        if not run(name, args.device, args.results):
            failed.append(name)
    if args.keep:
        keep(json.loads(sys.stdin.read().splitlines()[-1]), args.device, args.results)
    print(HEAD)
    for path, label in ROWS.items():
        name = path.partition(".")[0]
        for line in lines(path, label, read(name, args.device, args.results)):
            print(line)
    if failed:
        raise SystemExit(f"failed, with their messages above: {', '.join(failed)}")


def run(name: str, device: str, folder: Path) -> bool:
    """Run a benchmark and keep what it prints; returns whether it did."""
    command = [sys.executable, str(HERE / f"{name}.py"), *(["--device", "gpu"] if device == "gpu" else [])]
    print("running", name, file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return False
    keep(json.loads(done.stdout.splitlines()[-1]), device, folder)
    return True


def keep(result: dict[str, Any], device: str, folder: Path) -> None:
    """Write a result with the day and the hardware."""
    folder.mkdir(parents=True, exist_ok=True)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = json.dumps({**result, "hardware": hardware(device), "date": day}, indent=1)
    file_of(result["name"], device, folder).write_text(text + "\n", encoding="utf-8")


def read(name: str, device: str, folder: Path) -> dict[str, Any] | None:
    """What a benchmark found when it last ran."""
    path = file_of(name, device, folder)
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return found


def file_of(name: str, device: str, folder: Path) -> Path:
    """Where a result is kept; those of a GPU beside those of a CPU."""
    return folder / (f"{name}.json" if device == "cpu" else f"{name}-{device}.json")


def hardware(device: str) -> str:
    """The processor or the card, in words."""
    if device == "gpu":
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()[0]
    names = [line for line in _cpu_lines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.machine()
    return f"{name}, {os.cpu_count()} cores, jaxlib {importlib.metadata.version('jaxlib')}"


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def lines(path: str, label: str, result: dict[str, Any] | None) -> Iterator[str]:
    """The lines of the table that one part of a result makes.

    Example:
        >>> part = {"ours": 3.0, "theirs": 2.0, "ratio": 1.5, "spread": [1.4, 1.6], "hardware": "a CPU"}
        >>> list(lines("decode", "decode", {"name": "decode", "unit": "tokens/s", "date": "2026-01-01", **part}))
        ['| decode (`decode.py`) | 3.0 tokens/s | 2.0 | 1.50 (1.40 to 1.60) | - | measured here, 2026-01-01 |']
        >>> list(lines("update", "update", None))
        ['| update (`update.py`) | - | - | - | - | not run here |']
    """
    name, _, part = path.partition(".")
    if result is None or (part and part not in result):
        if "{" not in label:
            yield f"| {label} (`{name}.py`) | - | - | - | - | not run here |"
        return
    found = result[part] if part else result
    for item in found if isinstance(found, list) else [found]:
        for phase in [key for key in ("decode", "prefill") if key in item] or [""]:
            told = item[phase] if phase else item
            what = label.format_map({**result, **item}) + (f", {phase}" if phase else "")
            yield _line(f"{what} (`{name}.py`)", told, {"unit": result.get("unit", ""), **item}["unit"], result["date"])


def _line(what: str, part: dict[str, Any], unit: str, day: str) -> str:
    spread = part.get("spread")
    ratio = f"{part['ratio']:.2f}" + (f" ({spread[0]:.2f} to {spread[1]:.2f})" if spread else "")
    clock = part.get("ratio_cpu_time")
    clock = "-" if clock is None else f"{clock:.2f}"
    ours, theirs = (part.get(side, "-") for side in ("ours", "theirs"))
    ours = f"{ours} {unit}" if ours != "-" else ours
    return f"| {what} | {ours} | {theirs} | {ratio} | {clock} | measured here, {day} |"


if __name__ == "__main__":
    main()
