"""The published training sets come out of their seeds bit for bit, and our own sets never change."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from esopt_jax.search.tasks.instances import bpp_demands, cvrp_customers, kp_items, read_array, tsp_cities
from esopt_jax.search.tasks.registry import TASKS

SETS = {
    "tsp_constructive/train50_dataset.npy": (lambda: tsp_cities("train", 50), "bee6f8b6bf7f4678"),
    "kp_constructive/train100_dataset.npy": (lambda: kp_items("train", 100), "5321a7fa890f0263"),
    "cvrp_aco/train50_dataset.npy": (lambda: cvrp_customers("train", 50), "bf14c305949cda18"),
    "bpp_offline_aco/train500_dataset.npz": (lambda: bpp_demands("train", 500), "b10c7b99b663d01d"),
}


@pytest.mark.parametrize("name", SETS)
def test_the_training_set_of_a_seed_never_changes(name):
    draw, digest = SETS[name]
    assert hashlib.sha256(draw().tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("name", "digests"),
    [
        (
            "construct_tsp",
            {
                ("val", 50): "64 85739b0b",
                ("val", 20): "64 2a4ffb18",
                ("val", 100): "64 fa5f4726",
                ("val", 200): "64 a7ea1edd",
                ("test", 50): "1000 e00925a5",
                ("test", 20): "1000 f84c232d",
                ("test", 100): "1000 eac0a9e5",
                ("test", 200): "1000 993824cd",
            },
        ),
        (
            "construct_kp",
            {
                ("val", 100): "64 4042a8cf",
                ("val", 50): "64 499ddbb6",
                ("val", 200): "64 abaec76b",
                ("test", 100): "1000 6671b90b",
                ("test", 50): "1000 e8f825a6",
                ("test", 200): "1000 9f77738f",
            },
        ),
        (
            "construct_asp",
            {
                ("val", 15): "1 fb9f07a9",
                ("test", 15): "1 fb9f07a9",
                ("test", 12): "1 86032731",
                ("test", 21): "1 7860e7c9",
            },
        ),
        (
            "aco_tsp",
            {
                ("val", 50): "64 85739b0b",
                ("val", 20): "64 2a4ffb18",
                ("val", 100): "64 fa5f4726",
                ("test", 50): "64 4452bbf6",
                ("test", 20): "64 efe8d7c1",
                ("test", 100): "64 61c79d4e",
            },
        ),
        (
            "aco_cvrp",
            {
                ("val", 50): "64 367fdd99",
                ("val", 20): "64 f848e205",
                ("val", 100): "64 a0cc91cb",
                ("test", 50): "64 608b59bf",
                ("test", 20): "64 64d78db9",
                ("test", 100): "64 16049cfd",
            },
        ),
        (
            "aco_bpp",
            {
                ("val", 500): "64 eb4cbac9",
                ("val", 120): "64 0f26e133",
                ("val", 1000): "64 ba4ea139",
                ("test", 500): "64 820d275b",
                ("test", 1000): "64 b362daa6",
            },
        ),
    ],
)
def test_our_own_sets_never_change(name, digests):
    found = {}
    for split in ("val", "test"):
        for size in TASKS[name].sizes[split]:
            array = TASKS[name].draw(split, size)
            found[split, size] = f"{len(array)} {hashlib.sha256(array.tobytes()).hexdigest()[:8]}"
    assert found == digests


@pytest.mark.parametrize("name", SETS)
def test_the_training_set_of_a_seed_is_the_published_array(name):
    published = read_array(_folder() / name)
    np.testing.assert_array_equal(published, SETS[name][0]())


def test_that_of_aco_tsp_is_the_published_array():
    published = read_array(_folder() / "tsp_aco/train50_dataset.npy")
    np.testing.assert_array_equal(published, TASKS["aco_tsp"].draw("train", 50))


def test_every_published_array_is_one_of_its_task():
    folders = {
        "tsp_constructive": "construct_tsp",
        "kp_constructive": "construct_kp",
        "tsp_aco": "aco_tsp",
        "cvrp_aco": "aco_cvrp",
        "bpp_offline_aco": "aco_bpp",
    }
    for folder, name in folders.items():
        for path in (_folder() / folder).iterdir():
            array = read_array(path)
            assert len(TASKS[name].inputs(array)["seeds"]) == len(array)


def _folder() -> Path:
    folder = os.environ.get("ESOPT_AHD_ARRAYS")
    if folder is None:
        pytest.skip("ESOPT_AHD_ARRAYS does not name a folder of the published arrays")
    return Path(folder)
