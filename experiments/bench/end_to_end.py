"""A whole generation beside the published procedure in PyTorch, with transformers' `generate`.

    pip install -e '.[parity]' && python experiments/bench/end_to_end.py [--device gpu]

16 members play 8 conversations of 5 turns, each a question of about 27 tokens and a reply of 16, sampled at
temperature 1 from the same random Qwen3.5 of 8 layers and width 256 in float32; rewards are shaped and the weights
updated. `theirs` holds one model: noise is added for a member, its 8 conversations are played as one batch that reads
the whole history each turn, and the noise is taken away again; the update draws the noise of all members once more.
`ours` is the same generation in the full plan, and in `low_rank` that of rank 4. No reply ends early on either side.

Seconds a generation, each side in a process of its own on one core, in turn; `ratio` above 1 means ours is faster. What
compiles is in `compile_s` alone; `phases` are median seconds. `--device gpu` takes the shapes of a 4B model in bfloat16
(not run here). One JSON object on stdout.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sides
from ratio import compared

MEMBERS, CASES, TURNS, NEW, LETTERS, RANK = 16, 8, 5, 16, 16, 4
SIGMA, ALPHA, SEED = 1e-3, 5e-4, 20260701
AT_ONCE = {"cpu": 0, "gpu": 4}
"""Members of the full plan that are held at once; 0 for all."""
PLANS = ("full", "low_rank")


def make(folder: str, device: str, count: int, new: int) -> None:
    """A random model in the Hugging Face format, with the tokenizer of the built-in one."""
    import dialogue
    import shapes
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    from esopt_jax.models.load import BUILTIN
    from esopt_jax.models.sizes import PUBLISHED

    torch.manual_seed(0)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**(PUBLISHED[shapes.GPU] if device == "gpu" else dialogue.SMALL)))
    model.to(torch.bfloat16 if device == "gpu" else torch.float32).save_pretrained(folder)
    for path in (BUILTIN / "sudoku-4x4").iterdir():
        if "token" in path.name or "chat" in path.name:
            shutil.copy(path, folder)


def ours(folder: str, device: str, count: int, new: int) -> None:
    """A generation of either plan."""
    import dialogue
    import jax
    import jax.numpy as jnp
    from generation import Generation, Phases

    from esopt_jax.config import ESConfig, RolloutConfig
    from esopt_jax.models.load import open_model
    from esopt_jax.training.freed_memory import share_one_heap

    share_one_heap()
    model, phases = open_model(folder), Phases()
    phases.begin()
    room = TURNS * (new + LETTERS + 14)
    rollout = RolloutConfig(max_turns=TURNS, max_new_tokens=new, max_prompt_tokens=room, temperature=1.0)
    common = {"population_size": count, "rank": RANK, "sigma": SIGMA, "alpha": ALPHA, "seed": SEED}
    with ExitStack() as scope:
        jobs = {
            plan: Generation(
                model,
                dialogue.Dialogue(TURNS, LETTERS),
                cases=CASES,
                rollout=rollout,
                es=ESConfig(plan=plan, members_per_pass=AT_ONCE[device] if plan == "full" else 0, **common),
                dtype=jnp.bfloat16 if device == "gpu" else jnp.float32,
                phases=phases,
                scope=scope,
            )
            for plan in PLANS
        }
        weights = sum(spec.size for spec in model.specs)
        sides.serve(jobs, {"weights": weights, "versions": {"jax": jax.__version__}}, phases)


def theirs(folder: str, device: str, count: int, new: int) -> None:
    """One perturbed model at a time; the first call plays two members only."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # only the questions are read
    import dialogue
    import torch
    import torch_es
    import transformers
    from generation import Phases

    from esopt_jax.models.load import open_model
    from esopt_jax.rollouts.chat import load_chat

    torch.manual_seed(SEED)
    if device == "cpu":
        torch.set_num_threads(1)
    home = "cuda" if device == "gpu" else "cpu"
    kind = torch.bfloat16 if device == "gpu" else torch.float32
    model = transformers.Qwen3_5ForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=kind).eval()
    weights, phases = torch_es.tuned(model.to(home)), Phases()
    environment, chat = dialogue.Dialogue(TURNS, LETTERS), load_chat(Path(folder), thinking=False)
    ends, known = torch.full((CASES, 1), chat.end_of_turn, device=home), open_model(folder).vocab_limit
    seeds, calls = range(SEED, SEED + count), []

    def questions(turn: int) -> torch.Tensor:
        asked = [environment.ask(case, turn).messages for case in range(CASES)]
        return torch.tensor(chat.prompts(asked, append=turn > 0), device=home)

    def play() -> float:
        said, states = questions(0), [environment.reset(task, 0)[0] for task in environment.tasks("train")[:CASES]]
        rewards = [0.0] * CASES
        for turn in range(TURNS):
            read = said.shape[1]
            said = model.generate(
                input_ids=said,
                attention_mask=torch.ones_like(said),
                max_new_tokens=new,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                pad_token_id=0,
                eos_token_id=None,
            )
            for case, ids in enumerate(said[:, read:].tolist()):
                step = environment.step(states[case], chat.decode([i for i in ids if i < known]))
                states[case], rewards[case] = step.state, rewards[case] + step.reward
            if turn + 1 < TURNS:
                said = torch.cat([said, ends, questions(turn + 1)], 1)
        return statistics.fmean(rewards)

    def generation() -> None:
        members, rewards = seeds if calls else seeds[:2], []
        calls.append(len(members))
        for seed in members:
            with phases.of("perturb"):
                torch_es.add_noise(weights, seed, SIGMA)
            with phases.of("rollout"):
                rewards.append(play())
            with phases.of("perturb"):
                torch_es.add_noise(weights, seed, -SIGMA)
        with phases.of("update"):
            torch_es.update(weights, members, torch_es.zscored(rewards), alpha=ALPHA)
            if device == "gpu":
                torch.cuda.synchronize()

    phases.begin()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    with torch.inference_mode():
        sides.serve({"generation": generation}, {"versions": versions}, phases)


def measured(mine: list[sides.Took], other: list[sides.Took], compile_s: float) -> dict[str, Any]:
    """What the rounds of one plan say."""
    walls = [[each["wall"] for each in side] for side in (mine, other)]
    speeds = compared(*([1 / wall for wall in side] for side in walls), digits=4)
    cpu = statistics.median(t["cpu"] / o["cpu"] for o, t in zip(mine, other, strict=True))
    return {
        **speeds,
        "ours": round(statistics.median(walls[0]), 2),
        "theirs": round(statistics.median(walls[1]), 2),
        "ratio_cpu_time": round(cpu, 2),
        "cpu_s": {n: round(statistics.median(e["cpu"] for e in s), 2) for n, s in (("ours", mine), ("theirs", other))},
        "phases": {"ours": _phases(mine), "theirs": _phases(other)},
        "compile_s": round(max(0.0, compile_s - statistics.median(walls[0])), 1),
    }


def _phases(rounds: list[sides.Took]) -> dict[str, float]:
    return {part: round(statistics.median(each["extra"][part] for each in rounds), 3) for part in rounds[0]["extra"]}


def main() -> None:
    """Start both sides, alternate between them, print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--new", type=int, default=NEW, help="tokens of a reply")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--side", choices=("ours", "theirs", "make"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        {"ours": ours, "theirs": theirs, "make": make}[args.side](args.folder, args.device, args.members, args.new)
        return
    if args.device == "cpu":
        sides.pin_to_core()
    with tempfile.TemporaryDirectory() as folder:
        each = ["--device", args.device, "--members", str(args.members), "--new", str(args.new)]
        each += ["--folder", folder, "--side"]
        subprocess.run([sys.executable, __file__, *each, "make"], check=True, stdout=subprocess.DEVNULL)
        running = {name: sides.Side(__file__, [*each, name], device=args.device) for name in ("ours", "theirs")}
        took: dict[str, list[sides.Took]] = {job: [] for job in ("generation", *PLANS)}
        for _ in range(args.rounds):
            took["generation"].append(running["theirs"].do("generation"))
            for plan in PLANS:
                took[plan].append(running["ours"].do(plan))
        mine, other = (running[name].found for name in ("ours", "theirs"))
        for side in running.values():
            side.end()
    plans = {plan: measured(took[plan], took["generation"], mine["first_s"][plan]) for plan in PLANS}
    shape = {
        "members": args.members,
        "cases": CASES,
        "turns": TURNS,
        "new": args.new,
        "rank": RANK,
        "weights": mine["weights"],
    }
    result = {
        "name": "end_to_end",
        "unit": "s a generation, one core" if args.device == "cpu" else "s a generation, one GPU",
        **plans["full"],
        "low_rank": plans["low_rank"],
        "shape": shape,
        "versions": mine["versions"] | other["versions"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
