"""Several seeds of one config, one after the other, and one table of them.

    DIR/seed-0/ DIR/seed-1/ ...    run folders            DIR/aggregate.json    what they came to

The command that was stopped goes on when it is given again: finished seeds are kept, an unfinished one is resumed.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esopt_jax.config import Config, config_hash
from esopt_jax.config_reader import load_config
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.training.jsonl import read_json, write_json
from esopt_jax.training.left_behind import read_left_behind
from esopt_jax.training.loop import train
from esopt_jax.training.resume import resume
from esopt_jax.training.run_folder import RunFolder

log = logging.getLogger(__name__)

SCHEMA = 1
AGGREGATE = "aggregate.json"


def parse_seeds(text: str) -> list[int]:
    """Seeds from `0..4`, `0,2,5` or a mixture.

    Raises:
        EsoptError: something else, or a seed twice.

    Example:
        >>> parse_seeds("0..2,7")
        [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:\.\.(\d{1,10}))?\s*", part)
        if not match:
            raise EsoptError(f"--seeds {text!r}: give seeds such as 0..4 or 0,2,5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 10_000:
            raise EsoptError(f"--seeds {text!r}: {part.strip()!r} is no range from low to high, of at most 10000 seeds")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise EsoptError(f"--seeds {text!r} names a seed twice")
    return seeds


def train_seeds(config: Config, seeds: Sequence[int], root: Path) -> dict[str, Any]:
    """Run every seed, or go on with it, and return what `aggregate.json` then holds.

    Args:
        config: of all runs; `es.seed` is replaced.
        seeds: what to run, in this order.
        root: new, empty, or the folder of an earlier call with the same config.

    Raises:
        EsoptError: bad input, or a folder of another config is in the way.
        StoppedError: as `train`; the same call goes on from there.
    """
    configs = {seed: dataclasses.replace(config, es=dataclasses.replace(config.es, seed=seed)) for seed in seeds}
    if root.is_dir() and any(root.iterdir()) and not any(root.glob("seed-*")):
        raise EsoptError(f"folder {str(root)!r} is not empty and holds no seeds; give another --run-dir")
    for seed, own in configs.items():
        _check_same(_folder(root, seed), own)
    for number, (seed, own) in enumerate(configs.items(), 1):
        folder = _folder(root, seed)
        begun = folder.config.exists()
        finished = begun and _finished(folder, own)
        state = ": finished earlier" if finished else ": going on" if begun else ""
        log.info("seed %d (%d of %d)%s", seed, number, len(configs), state)
        try:
            if not begun:
                train(own, folder.path)
            elif not finished:
                resume(folder.path)
        except StoppedError as fault:
            raise type(fault)(f"{fault}; the same command with --seeds goes on with all of them") from fault
    result = aggregate({seed: read_json(_folder(root, seed).summary) for seed in seeds})
    write_json(root / AGGREGATE, result)
    return result


def aggregate(summaries: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Mean, standard deviation, median and 95 % interval over seeds of what the summaries hold.

    The interval is Student's t over seeds (`mean ± t(n-1) sd / sqrt(n)`): it says how another seed may come out, not
    how well one run is measured. One seed has none.

    Args:
        summaries: seed -> its `summary.json`.

    Returns:
        `{"schema", "preset", "seeds", "base", "final", "gain", "best_random"}`, each of the last four None or
        `{"mean", "sd", "median", "ci95", "values"}`.
    """
    first = next(iter(summaries.values()))
    found: dict[str, Any] = {"schema": SCHEMA, "preset": first["preset"], "seeds": list(summaries)}
    for name in ("base", "final", "gain", "best_random"):
        records = [summary[name] for summary in summaries.values()]
        found[name] = None if None in records else spread([record["mean"] for record in records])
    return found


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sd (ddof 1), median and t interval of some numbers.

    Example:
        >>> spread([1.0, 2.0, 3.0])["ci95"][0] < 0 < spread([1.0, 2.0, 3.0])["mean"]
        True
    """
    n, x = len(values), np.asarray(values, np.float64)
    record: dict[str, Any] = {"mean": float(x.mean()), "sd": None, "median": float(np.median(x)), "ci95": None}
    if n > 1:
        from scipy.stats import t

        sd = float(x.std(ddof=1))
        half = float(t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
        record |= {"sd": sd, "ci95": [record["mean"] - half, record["mean"] + half]}
    return {**record, "values": [float(value) for value in values]}


def _folder(root: Path, seed: int) -> RunFolder:
    return RunFolder(root / f"seed-{seed}")


def _finished(folder: RunFolder, config: Config) -> bool:
    if config.method == "grpo":
        from esopt_jax.training.baselines.grpo_resume import is_finished

        return is_finished(folder, config)
    return read_left_behind(folder).finished


def _check_same(folder: RunFolder, config: Config) -> None:
    if folder.config.exists() and config_hash(load_config(folder.config)) != config_hash(config):
        raise EsoptError(f"{str(folder.path)!r} holds a run of another config; give another --run-dir")
