"""The page of a run with ten thousand turns: how long it takes to write, how large it is, how fast it opens.

    python experiments/bench/view.py

Two made-up runs: `short` has the turns of 4x4 Sudoku (about 30 tokens read, 8 written), `long` reads 430 tokens and
writes 120, as the published prompts do. Both have 10,000 turns in episodes of 10. Chromium (`apt-get install chromium`)
opens each page with its episodes in view; times are counted from the start of the navigation: `list_ms` until the
script has drawn the list, `turns_ms` until the first episode is drawn with its turns. `next_ms` is from the press of a
key to the next episode that lies in another pack. Medians over rounds. One JSON object on stdout.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # the browser that the tests look at pages with

import chromium
import view_runs

from esopt_jax.models.load import resolve_folder
from esopt_jax.reporting.page import write_page
from esopt_jax.rollouts.chat import load_chat

TURNS, LENGTH = 10_000, 10
SHAPES = {"short": (30, 8), "long": (430, 120)}


def make_run(folder: Path, *, turns: int, read: int, written: int) -> Path:
    """A run folder whose prompts and replies are random tokens; half of each prompt is the same in all."""
    chat, rng = load_chat(resolve_folder("builtin:sudoku-4x4"), thinking=True), random.Random(0)
    known = range(3, 117)
    rules = rng.choices(known, k=read // 2)

    def play(case: int) -> view_runs.Trajectory:
        prompts = [(*rules, *rng.choices(known, k=read - len(rules))) for _ in range(LENGTH)]
        replies = [chat.text(tuple(rng.choices(known, k=written))) for _ in range(LENGTH)]
        own = [view_runs.turn(reply, prompt=prompt) for reply, prompt in zip(replies, prompts, strict=True)]
        return view_runs.episode(*own, generation=case // 100, member=case % 2, case=case // 2 % 50)

    episodes = [play(case) for case in range(turns // LENGTH)]
    by_generation = {g: episodes[g * 100 : (g + 1) * 100] for g in range(len(episodes) // 100)}
    rows = [{"generation": g, "fitness/mean": g / 10, "fitness/best": g / 5} for g in by_generation]
    return view_runs.write_run(folder, population=by_generation, rows=rows, config={"env": {"name": "echo"}})


def open_page(page: chromium.Page, path: Path) -> dict[str, float]:
    """Milliseconds to the list, to the first turns, and to those of the last episode."""
    page.open(path, "view=episodes")
    page.settle()
    drawn = "[...performance.getEntriesByName('turns')].at(-1)?.startTime"
    shown = page.run(drawn)
    page.run("document.querySelector('.list').focus(); performance.mark('key')")
    page.press("End")
    page.wait(f"{drawn} > {shown}")
    key = page.run("performance.getEntriesByName('key')[0].startTime")
    return {
        "list_ms": page.run("Number(document.documentElement.dataset.ready)"),
        "turns_ms": shown,
        "next_ms": page.run(drawn) - key,
    }


def main() -> None:
    """Write, open, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=TURNS)
    args = parser.parse_args()
    shapes = {}
    with tempfile.TemporaryDirectory() as root, chromium.opened_chromium() as page:
        for name, (read, written) in SHAPES.items():
            run = make_run(Path(root) / name, turns=args.turns, read=read, written=written)
            write_page(run)  # the first loads the tokenizer's library
            began = time.perf_counter()
            path = write_page(run)
            seconds = time.perf_counter() - began
            rounds = [open_page(page, path) for _ in range(args.rounds)]
            times = {key: round(statistics.median(each[key] for each in rounds), 1) for key in rounds[0]}
            shapes[name] = {"write_s": round(seconds, 2), "megabytes": round(path.stat().st_size / 1e6, 2), **times}
        version = page.call("Browser.getVersion")["product"]
    print(json.dumps({"name": "view", "turns": args.turns, **shapes, "versions": {"chromium": version}}))


if __name__ == "__main__":
    main()
