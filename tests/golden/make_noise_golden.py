"""Writes `noise.json`: noise specification 1 by a second, independent implementation (NumPy, float64).

    python tests/golden/make_noise_golden.py

Words are exact on every platform; normals are compared to 1e-6. A change of this file's output is a change of the noise
specification, after which old histories cannot be replayed.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

CASES = [
    {"seed": 0, "generation": 0, "member": 0, "path": "norm.weight", "shape": [48], "inputs": 0},
    {"seed": 0, "generation": 1, "member": 0, "path": "norm.weight", "shape": [1], "inputs": 0},
    {"seed": 7, "generation": 3, "member": 5, "path": "layers.0.mlp.down_proj.weight", "shape": [9, 128], "inputs": 1},
    {"seed": 7, "generation": 3, "member": 5, "path": "layers.1.mlp.down_proj.weight", "shape": [9, 129], "inputs": 1},
    {"seed": 2**32 - 1, "generation": 99, "member": 31, "path": "embed_tokens.weight", "shape": [5, 700], "inputs": 1},
    {
        "seed": 1,
        "generation": 2,
        "member": 3,
        "path": "layers.0.self_attn.o_proj.weight",
        "shape": [2, 3, 4, 260],
        "inputs": 3,
    },
    {"seed": 1, "generation": 2, "member": 3, "path": "layers.0.conv1d.weight#q", "shape": [4, 2, 16], "inputs": 0},
]


def threefry(k0, k1, x0, x1):
    k0, k1, x0, x1 = (np.atleast_1d(np.asarray(v, np.uint32)).copy() for v in (k0, k1, x0, x1))
    keys = [k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA)]
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for step in range(20):
        turn = [13, 15, 26, 6, 17, 29, 16, 24][step % 8]
        x0 = x0 + x1
        x1 = (x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))
        x1 = x1 ^ x0
        if step % 4 == 3:
            injection = step // 4 + 1
            x0 = x0 + keys[injection % 3]
            x1 = x1 + keys[(injection + 1) % 3] + np.uint32(injection)
    return x0, x1


def fold(key, data):
    a, b = threefry(*key, 0, data)
    return int(a[0]), int(b[0])


def member_key(seed, purpose, generation, member):
    key = (0, seed)
    for data in (purpose, generation, member):
        key = fold(key, data)
    return key


def draw(key, rows, columns):
    """Words of all pairs `[rows, tiles, 128]` twice, and normals `[rows, columns]` in float64."""
    tiles = -(-columns // 256)
    counter = np.arange(rows * tiles * 128, dtype=np.uint32)
    first, second = threefry(*key, 0, counter)
    radius = np.sqrt(-2 * np.log(((first >> np.uint32(8)).astype(np.float64) + 1) / 2**24))
    quadrant = (second >> np.uint32(30)).astype(np.float64)
    fraction = ((second << np.uint32(2)).view(np.int32) >> 8).astype(np.float64) / 2**24
    turn = np.pi / 2 * (quadrant + fraction)
    pairs = np.stack([radius * np.cos(turn), radius * np.sin(turn)]).reshape(2, rows, tiles, 128)
    normals = np.moveaxis(pairs, 0, 2).reshape(rows, tiles * 256)[:, :columns]
    return first, second, normals


def record(case):
    shape, inputs = case["shape"], case["inputs"]
    split = inputs if inputs else (1 if len(shape) > 1 else 0)
    rows = int(np.prod(shape[:split], dtype=int))
    columns = int(np.prod(shape, dtype=int)) // rows
    leaf = int.from_bytes(hashlib.blake2s(case["path"].encode(), digest_size=4).digest(), "little")
    key = fold(member_key(case["seed"], 0, case["generation"], case["member"]), leaf)
    first, second, normals = draw(key, rows, columns)
    left = draw(fold(key, 0), 3, rows)[2]
    right = draw(fold(key, 1), 3, columns)[2]
    return case | {
        "leaf_hash": leaf,
        "key": list(key),
        "pairs": {str(p): [int(first[p]), int(second[p])] for p in (0, 1, len(first) // 2, len(first) - 1)},
        "normals": sample(normals),
        "left": sample(left),
        "right": sample(right),
    }


def sample(x):
    flat = x.ravel()
    positions = sorted({0, 1, 127, 128, 129, 255, 256, flat.size // 2, flat.size - 1} & set(range(flat.size)))
    return {str(i): round(float(flat[i]), 9) for i in positions}


if __name__ == "__main__":
    target = Path(__file__).with_name("noise.json")
    target.write_text(json.dumps([record(case) for case in CASES], indent=1) + "\n")
    print(f"wrote {target}")
