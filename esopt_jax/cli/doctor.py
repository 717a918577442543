"""`esopt doctor`: what this machine offers a run, to read or to paste into a report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

_DESCRIPTION = """\
Say what a run would find on this machine: packages, devices, memory, folders. Problems come last, each with a fix.
Exit code 0 when nothing prevents a run, 2 otherwise. The report names no host and no user."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("doctor", help="examine this machine", description=_DESCRIPTION)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Examine and print."""
    from esopt_jax.training.doctor import examine

    report = examine()
    print(json.dumps(report) if args.json else "\n".join(_lines(report)))
    return 2 if any(problem["fatal"] for problem in report["problems"]) else 0


def _lines(report: dict[str, Any]) -> Iterator[str]:
    jax, folders = report["jax"], report["folders"]
    yield f"esopt_jax     {report['esopt_jax']}, commit {(jax or {}).get('git_commit') or 'unknown'}"
    yield f"python        {report['python']}, {report['system']}"
    yield f"packages      {_versions(report['packages'])}"
    for extra, packages in report["extras"].items():
        yield f"  {extra:<12}{_versions(packages)}"
    if jax is not None:
        kinds = [f"{device['kind']} (memory {_size(device['memory_bytes'])})" for device in jax["devices"]]
        yield f"devices       {jax['backend']}: {', '.join(kinds)}"
        yield f"variables     {', '.join(f'{name}={value}' for name, value in jax['flags'].items()) or 'none'}"
    memory = report["host_memory_bytes"]
    cpus = "" if jax is None else f"{jax['cpus']} CPUs, "
    yield f"host          {cpus}memory {_size(memory['total'])}, available {_size(memory['available'])}"
    for name, folder in folders.items():
        yield f"{name.replace('_', ' '):<13} {_folder(folder)}"
    yield f"bubblewrap    {'there' if report['bubblewrap'] else 'not there (optional)'}"
    for problem in report["problems"]:
        yield f"{'PROBLEM' if problem['fatal'] else 'note'}: {problem['what']}. Fix: {problem['fix']}"
    if not report["problems"]:
        yield "no problems found"


def _versions(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items()) or "unknown"


def _folder(folder: dict[str, Any] | None) -> str:
    if folder is None:
        return "none"
    parts = [str(folder["path"]), "can be written" if folder["writable"] else "CANNOT be written"]
    parts += [f"holds {_size(folder['bytes'])}"] if "bytes" in folder else []
    return ", ".join([*parts, f"{_size(folder['free_bytes'])} free"])


def _size(n_bytes: int | None) -> str:
    if n_bytes is None:
        return "unknown"
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"
