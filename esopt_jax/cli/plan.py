"""`esopt plan`: what a run will need, before it is started."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from esopt_jax.cli.train import add_set_option
from esopt_jax.config_reader import load_config

DEVICE_MEMORY = 72.0
"""GiB that a run may use by default: an H100 has 79.6, of which a tenth is left to CUDA, NCCL and fragmentation."""

_GIB = 2**30
_DESCRIPTION = """\
Say what a run will need: bytes on each device, checkpoints, episodes and tokens, what devices exchange; whether it fits
the memory of a device; and if not, which keys make it fit. The programs of the run are compiled for as many pretended
devices as hold a model together, on the CPU: no accelerator is touched, no weight is read, nothing is trained or
written. The model may be a folder, or the name of a published size such as qwen3.5-27b or Qwen/Qwen3.5-27B."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser("plan", help="say what a run will need", description=_DESCRIPTION)
    parser.add_argument("source", metavar="PRESET|FILE", help="name of a preset or a YAML file")
    add_set_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the resolved config in it")
    parser.add_argument(
        "--tokens-per-s",
        type=_positive,
        metavar="X",
        help="tokens that all devices together write in a second, the prompts they read on the way included; gives the "
        "longest that a generation can take",
    )
    parser.add_argument(
        "--device-memory",
        type=_positive,
        default=DEVICE_MEMORY,
        metavar="GIB",
        help=f"memory of a device that a run may use (default: {DEVICE_MEMORY:g}, an H100 of 80 GB less a tenth)",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="compile all layers of the model, where by default two repetitions of their pattern stand for the rest",
    )


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    options = [f"--device-memory={args.device_memory}"]
    options += [] if args.tokens_per_s is None else [f"--tokens-per-s={args.tokens_per_s}"]
    options += [flag for flag, given in (("--json", args.json), ("--whole", args.whole)) if given]
    config = load_config(args.source, args.overrides)
    if "jax" in sys.modules:  # it reads what follows when it starts, and may have started
        return in_a_child(args.source, args.overrides, options)
    _pretend_devices(config.train.mesh[1])
    from esopt_jax.training.plan import make_plan

    memory = args.device_memory * _GIB
    plan = make_plan(config, device_memory=memory, tokens_per_s=args.tokens_per_s, whole=args.whole)
    print(json.dumps(plan) if args.json else "\n".join(_lines(plan)))
    return 0


def in_a_child(source: str, overrides: Sequence[str], options: Sequence[str] = ()) -> int:
    """The same in a process of its own, whose output is passed on."""
    settings = [f"--set={override}" for override in overrides]
    command = [sys.executable, "-m", "esopt_jax.cli.main", "plan", *options, *settings, "--", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    sys.stdout.write(done.stdout)
    return done.returncode


def _pretend_devices(count: int) -> None:
    """Let JAX start on the CPU, with so many devices; its compile cache keeps programs to run, and these never do."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip(), "JAX_ENABLE_COMPILATION_CACHE": "false"}


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    from esopt_jax.training.plan_advice import readable

    config, mesh, rows = plan["config"], plan["mesh"], plan["rows_per_device"]
    es, held, evaluation = config["es"], plan["per_device_bytes"], plan["evaluation_bytes"]["total"]
    yield f"model         {plan['model']}, {plan['parameters']:,} parameters, {config['model']['dtype']}"
    yield f"mesh          {mesh}: {_count(mesh[0], 'group')} of {_count(mesh[1], 'device')}, each group with a model"
    yield (
        f"population    {es['population_size']} members x {config['rollout']['cases']} cases, {es['plan']} noise, "
        f"in {_count(plan['passes'], 'pass', 'passes')}; a group plays {rows['population']} episodes at once, "
        f"{plan['context_tokens']} tokens long at most"
    )
    moments = f"{readable(held['total'])} while members play, {readable(evaluation)} while the model is evaluated"
    yield f"on a device   {moments}"
    notes = {
        "weights": "what a forward pass reads",
        "master": f"what the {es['master']} master holds beyond that",
        "member": "copies of members in flight" if es["plan"] == "full" else "factors of members in flight",
        "caches": "keys, values and states of their episodes",
        "scratch": plan["scratch_is"],
    }
    for name, note in notes.items():
        yield f"  {name:<12}{readable(held[name]):>10}  {note}"
    yield f"  {'allowed':<12}{readable(plan['device_memory_bytes']):>10}"
    yield f"exchanged     {_collectives(plan['collectives'])}"
    flops = plan["flops_per_device"]
    yield f"work          {flops['decode_step']:.2e} operations a device for a token of each episode in flight"
    tokens, seconds = plan["tokens_per_generation"], plan["seconds_per_generation"]
    longest = "" if seconds is None else f"; {seconds:,.0f} s to write them"
    yield (
        f"generation    {plan['episodes_per_generation']:,} episodes, at most {tokens['written_at_most']:,} tokens "
        f"written and {tokens['read_at_most']:,} read{longest}"
    )
    kept = f"{plan['checkpoints_kept_bytes'] / 1e9:.1f} GB are kept"
    yield f"checkpoint    {plan['checkpoint_bytes'] / 1e9:.1f} GB; {kept}"
    for found in plan["compiled"]["disagreements"]:
        yield f"WARNING: {found}; please report this"
    if plan["fits"]:
        yield "fits"
        return
    yield f"DOES NOT FIT: {plan['reason']}. What makes it fit:"
    for line in plan["advice"]:
        yield f"  {line}"


def _collectives(found: dict[str, dict[str, int]]) -> str:
    parts = []
    for program, step in (("decode", "a token"), ("noise", "an update")):
        some = [f"{count} {name} {step}" for name, count in found[program].items() if count]
        parts.append(f"{program}: {', '.join(some) or 'nothing'}")
    return "; ".join(parts)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
