"""Run a config, or go on with it, and be killed (SIGKILL, nothing is cleaned up) at a moment.

python killed.py CONFIG.yaml RUN_DIR MOMENT NTH
"""

import os
import signal
import sys
from pathlib import Path

from esopt_jax.config_reader import load_config
from esopt_jax.training.loop import train
from esopt_jax.training.moments import Moment
from esopt_jax.training.resume import resume


def main(config: str, run_dir: str, moment: str, nth: str) -> None:
    left = int(nth)

    def at(now: Moment) -> None:
        nonlocal left
        left -= now == moment
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if Path(run_dir).exists():
        resume(run_dir, at=at)
    else:
        train(load_config(config), run_dir, at=at)


if __name__ == "__main__":
    main(*sys.argv[1:])
