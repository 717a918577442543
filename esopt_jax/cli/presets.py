"""`esopt presets`: what can be run out of the box."""

from __future__ import annotations

import argparse

from esopt_jax.config_reader import load_config, preset_names


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    commands.add_parser("presets", help="list the presets", description="List the presets and what each one does.")


def run(args: argparse.Namespace) -> int:
    """Print one line a preset."""
    names = preset_names()
    width = max(map(len, names), default=0)
    for name in names:
        print(f"{name:<{width}}  {load_config(name).description}")
    print("\nRun one with: esopt train NAME [--set section.key=value] [--run-dir DIR]")
    return 0
