"""`esopt env`: check an environment, or start one of your own."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from esopt_jax.config_reader import parse_value
from esopt_jax.errors import EsoptError

_CHECK = """\
Play an environment without a model and check that it keeps its contract: tasks and splits, well-formed observations
and rewards, no state changed in place, the same episode for the same seed, calls that return. Exit code 2 if a check
fails."""

_NEW = """\
Write NAME.py, an environment that works as it is and that the shipped model can learn, and NAME.yaml, which trains
it."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "env",
        help="check an environment, or start one of your own",
        description="Check an environment, or start one of your own: see `esopt env check -h` and `esopt env new -h`.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="does an environment keep its contract?", description=_CHECK)
    check.add_argument("name", metavar="NAME", help="registered name, package.module:factory or file.py:factory")
    check.add_argument(
        "--option",
        dest="options",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of the factory, as under env.options in a config; may be repeated",
    )
    check.add_argument("--prompt", metavar="P", help="as env.prompt, for a factory that has prompts")
    check.add_argument(
        "--reply",
        dest="replies",
        metavar="TEXT",
        action="append",
        default=[],
        help="what a good agent could say, tried besides odd ones; may be repeated",
    )
    check.add_argument(
        "--timeout-s", type=float, default=10.0, metavar="S", help="seconds a call may take (default: %(default)g)"
    )
    check.add_argument("--episodes", type=int, default=4, metavar="N", help="per check (default: %(default)s)")
    check.add_argument(
        "--turns", type=int, default=100, metavar="N", help="in which an episode should end (default: %(default)s)"
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    new = actions.add_parser("new", help="write the start of one", description=_NEW)
    new.add_argument("name", metavar="NAME", help="lower case, such as my_game")
    new.add_argument("--dir", type=Path, default=Path(), metavar="DIR", help="where to write (default: here)")


def run(args: argparse.Namespace) -> int:
    """Check or write."""
    return _check(args) if args.action == "check" else _new(args)


def _check(args: argparse.Namespace) -> int:
    if not 0 < args.timeout_s < 1e6:
        raise EsoptError(f"--timeout-s is {args.timeout_s:g}; it must be above 0 and below 1e6 seconds")
    for key in ("episodes", "turns"):
        if getattr(args, key) < 1:
            raise EsoptError(f"--{key} is {getattr(args, key)}; it must be at least 1")

    from esopt_jax.envs.check import check_environment
    from esopt_jax.envs.registry import make_environment
    from esopt_jax.envs.timed_calls import HungError, TimedCaller

    options = _parse_options(args.options)
    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints must not mix with the verdict
        try:
            build = TimedCaller(args.timeout_s)
            environment = build("building", make_environment, args.name, prompt=args.prompt, options=options)
        except HungError as fault:
            raise EsoptError(f"environment {args.name!r}: {fault}; pass a longer --timeout-s") from None
        findings = check_environment(
            environment,
            timeout_s=args.timeout_s,
            episodes=args.episodes,
            max_turns=args.turns,
            replies=args.replies,
        )
    passed = all(finding.status != "FAIL" for finding in findings)
    if args.json:
        print(json.dumps({"environment": args.name, "passed": passed, "checks": [vars(f) for f in findings]}))
        return 0 if passed else 2
    for finding in findings:
        print(f"{finding.status:<8} {finding.check:<11} {finding.detail}")
    counts = ((status, sum(finding.status == status for finding in findings)) for status in ("ok", "FAIL", "warning"))
    print(f"\n{args.name}: " + ", ".join(f"{count} {status}" for status, count in counts if count))
    return 0 if passed else 2


def _parse_options(words: list[str]) -> dict[str, Any]:
    """`key=value` words with their values read as YAML, as those of `--set`."""
    options: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise EsoptError(f"--option {word!r} is not of the form key=value, such as size=9")
        options[key.strip()] = parse_value(text)
    return options


def _new(args: argparse.Namespace) -> int:
    from esopt_jax.envs.scaffold import write_scaffold

    made = write_scaffold(args.name, args.dir)
    print(f"wrote {made.code} and {made.config}; next:\n")
    config = shlex.quote(str(made.config))
    for command, what in (
        (f"esopt env check {shlex.quote(made.environment)}", "after every change"),
        (f"esopt eval {config}", "what the shipped model scores"),
        (f"esopt train {config}", "what it can learn"),
    ):
        print(f"  {command:<50}  # {what}")
    return 0
