"""`esopt`: one command, one file a subcommand.

Exit codes: 0 done, 2 bad input, 3 stopped with what it had kept, 130 interrupted. Nothing heavy is imported until a
subcommand runs.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from esopt_jax import __version__
from esopt_jax.errors import EsoptError

COMMANDS = {
    "train": "train",
    "plan": "plan",
    "eval": "evaluate",
    "replay": "replay",
    "export": "export",
    "import-history": "import_history",
    "presets": "presets",
    "data": "data",
    "env": "env",
    "ahd": "ahd",
    "plot": "plot",
    "watch": "watch",
    "view": "view",
    "play": "play",
    "profile": "profile",
    "doctor": "doctor",
}
"""Subcommand -> module of `esopt_jax.cli`, each with `add_parser(commands)` and `run(args) -> int`."""

_EPILOG = """\
start here:
  esopt presets                              what can be run
  esopt train quickstart                     tune a tiny agent on a CPU, in minutes
  esopt train quickstart --set es.seed=1     change any key of the config
  esopt plan quickstart                      say what a run will need, before it starts
  esopt train --resume DIR                   go on with a run that was stopped or killed
  esopt eval DIR                             score what a run has learnt on held-out tasks
  esopt play DIR                             watch one episode
  esopt view DIR                             write a run as a web page to click through
  esopt export DIR --out FOLDER              write the tuned model for transformers and vLLM

exit codes: 0 done, 2 bad input, 3 stopped with what it had kept, 130 interrupted"""


class _StderrHandler(logging.StreamHandler):
    """Looks up `sys.stderr` at each line, so that a progress bar can keep its place below the log."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; bad input is one line on standard error, never a traceback."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    _configure_logging(verbose=args.verbose)
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it misses torch, which nothing here needs
    try:
        return importlib.import_module(f"esopt_jax.cli.{COMMANDS[args.command]}").run(args)
    except EsoptError as fault:
        print("esopt: error:", *str(fault).splitlines(), file=sys.stderr)  # one line, whatever a name in it holds
        return fault.exit_code
    except BrokenPipeError:  # the reader of our output went away, as in `esopt presets | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, RuntimeError) as fault:
        message = _of_the_system(fault)
        if message is None:
            raise
        print("esopt: error:", message, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("esopt: error: interrupted", file=sys.stderr)
        return 130


def _of_the_system(fault: Exception) -> str | None:
    """What the operating system or the device refused, in one line; None where the fault is this package's."""
    from esopt_jax.training.stopping import STOPS, as_stop

    stop = as_stop(fault) if isinstance(fault, STOPS) else None
    return None if stop is None else str(stop)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="esopt",
        description="Fine-tune LLM agents with evolution strategies: forward passes only, no gradients.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"esopt {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="also show debug messages")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in COMMANDS.values():
        importlib.import_module(f"esopt_jax.cli.{module}").add_parser(commands)
    return parser


def _configure_logging(*, verbose: bool) -> None:
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("esopt_jax")
    log.handlers[:] = [handler]
    log.propagate = False  # libraries that log at the root would make it say everything twice
    log.setLevel(logging.DEBUG if verbose else logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
