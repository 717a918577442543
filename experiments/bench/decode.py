"""Decode speed of our loop beside transformers' `generate`, on the same tiny random Qwen3.5.

    pip install -e '.[parity]' && python experiments/bench/decode.py [--device gpu]

8 layers, width 256, batch 32, prompt 64, 128 new tokens, float32, greedy, no early stop. The two sides run in two
processes, each pinned to one core and one thread, and take turns; the median of the per-round ratios is reported.
Decode time is the time of 128 new tokens less the time of 1. `--device gpu` takes the shapes of a 4B model in bfloat16
(not run here). One JSON object on stdout; `ratio` above 1 means ours is faster, `spread` holds its quartiles.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from ratio import compared

SHAPE = {"batch": 32, "prompt": 64, "new": 128, "vocab": 4096, "width": 256, "layers": 8}


def main() -> None:
    """Start both sides, alternate between them, print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--side", choices=("ours", "theirs", "make"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    on_gpu = args.device == "gpu"
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    if args.side:
        {"ours": ours, "theirs": theirs, "make": make_model}[args.side](args.folder, on_gpu)
        return
    with tempfile.TemporaryDirectory() as folder:
        each = [sys.executable, __file__, "--device", args.device, "--folder", folder]
        subprocess.run([*each, "--side", "make"], check=True, env=_environment(on_gpu))
        if not on_gpu:
            each += ["--core", str(max(os.sched_getaffinity(0)))]
        sides = {name: _start([*each, "--side", name], on_gpu) for name in ("ours", "theirs")}
        versions = {name: json.loads(side.stdout.readline()) for name, side in sides.items()}
        rounds = [{name: _measure(side) for name, side in sides.items()} for _ in range(args.rounds)]
        for side in sides.values():
            side.stdin.close()
            side.wait()
    speeds = {name: [r[name]["wall"] for r in rounds] for name in ("ours", "theirs")}
    cpu = statistics.median(r["ours"]["cpu"] / r["theirs"]["cpu"] for r in rounds)
    result = {
        "name": "decode",
        "unit": "tokens/s, one GPU" if on_gpu else "tokens/s, one core",
        **compared(speeds["ours"], speeds["theirs"], digits=1),
        "ratio_cpu_time": round(cpu, 2),
        "shape": {key: SHAPE[key] for key in ("batch", "prompt", "new")} if on_gpu else SHAPE,
        "versions": versions["ours"] | versions["theirs"],
    }
    print(json.dumps(result))


def _environment(on_gpu: bool) -> dict[str, str]:
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    one_thread = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
    }
    return os.environ | quiet | ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if on_gpu else one_thread)


def _start(command: list[str], on_gpu: bool) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        env=_environment(on_gpu),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _measure(side: subprocess.Popen) -> dict[str, float]:
    side.stdin.write("go\n")
    side.stdin.flush()
    return json.loads(side.stdout.readline())


def _serve(generate, versions: dict[str, str]) -> None:
    """Answer each line of stdin with the decode speed of `generate(new_tokens)`, by wall and by CPU time."""
    generate(SHAPE["new"])
    generate(1)
    print(json.dumps(versions), flush=True)
    for _ in sys.stdin:
        spent = {}
        for new in (1, SHAPE["new"]):
            wall, cpu = time.perf_counter(), time.process_time()
            generate(new)
            spent[new] = (time.perf_counter() - wall, time.process_time() - cpu)
        tokens = SHAPE["batch"] * (SHAPE["new"] - 1)
        wall, cpu = (tokens / (spent[SHAPE["new"]][i] - spent[1][i]) for i in (0, 1))
        print(json.dumps({"wall": wall, "cpu": cpu}), flush=True)


def make_model(folder: str, on_gpu: bool) -> None:
    """A random model in the Hugging Face format."""
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    from esopt_jax.models.sizes import PUBLISHED

    torch.manual_seed(0)
    if on_gpu:
        model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**PUBLISHED["qwen3.5-4b"]))
        model.to(torch.bfloat16).save_pretrained(folder)
        return
    config = Qwen3_5TextConfig(
        vocab_size=SHAPE["vocab"],
        hidden_size=SHAPE["width"],
        intermediate_size=3 * SHAPE["width"],
        num_hidden_layers=SHAPE["layers"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
    )
    Qwen3_5ForCausalLM(config).save_pretrained(folder)


def theirs(folder: str, on_gpu: bool) -> None:
    """Transformers' `generate` with its cache."""
    import torch
    import transformers

    if not on_gpu:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype, home = (torch.bfloat16, "cuda") if on_gpu else (torch.float32, "cpu")
    model = transformers.Qwen3_5ForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=dtype)
    model = model.to(home).eval()
    ids = torch.randint(5, SHAPE["vocab"], (SHAPE["batch"], SHAPE["prompt"]), device=home)

    def generate(new: int) -> None:
        with torch.inference_mode():
            model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
        if on_gpu:
            torch.cuda.synchronize()

    _serve(generate, {"torch": torch.__version__, "transformers": transformers.__version__})


def ours(folder: str, on_gpu: bool) -> None:
    """Prefill and `decode_segment` of this package."""
    import jax
    import jax.numpy as jnp

    from esopt_jax.config import RolloutConfig
    from esopt_jax.models.load import open_model
    from esopt_jax.rollouts.decode import DecodeSpec, Segment, decode_segment, init_state, start_turn
    from esopt_jax.rollouts.sampler import make_sampling

    dtype = jnp.bfloat16 if on_gpu else jnp.float32
    model = open_model(folder)
    params = {s.path: model.params[s.path].astype(jnp.float32 if s.keep_float32 else dtype) for s in model.specs}
    greedy = make_sampling(RolloutConfig(temperature=0.0))
    shape = (1, SHAPE["batch"])
    spec = DecodeSpec(
        arch=model.arch,
        eos_ids=(),
        vocab_limit=model.arch.vocab_size,
        max_new_tokens=SHAPE["new"],
        capacity=SHAPE["prompt"] + SHAPE["new"],
    )
    ids = jax.random.randint(jax.random.key(0), (*shape, SHAPE["prompt"]), 5, SHAPE["vocab"])
    lengths = jnp.full(shape, SHAPE["prompt"])
    segment = Segment(tokens=ids, lengths=lengths, fresh=jnp.ones(shape, bool))
    keys = jax.random.split(jax.random.key(0), shape)
    axes = dict.fromkeys(params)  # every leaf is shared

    @jax.jit
    def run(params, state, steps):
        state = start_turn(params, state, segment, keys, greedy, spec=spec, axes=axes)
        return decode_segment(params, state, steps, greedy, spec=spec, axes=axes).tokens

    def generate(new: int) -> None:
        run(params, init_state(spec, shape, dtype=dtype), new - 1).block_until_ready()

    _serve(generate, {"jax": jax.__version__})


if __name__ == "__main__":
    main()
