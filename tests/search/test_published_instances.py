"""The published training sets come out of their seeds, bit for bit."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from esopt_jax.search.tasks.instances import bpp_demands, cvrp_customers, kp_items, tsp_cities

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


@pytest.mark.parametrize("name", SETS)
def test_the_training_set_of_a_seed_is_the_published_array(name):
    folder = os.environ.get("ESOPT_AHD_ARRAYS")
    if folder is None:
        pytest.skip("ESOPT_AHD_ARRAYS does not name a folder of the published arrays")
    published = np.load(Path(folder) / name)
    if name.endswith(".npz"):
        published = published["demands"]
    np.testing.assert_array_equal(published, SETS[name][0]())
