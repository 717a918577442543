"""A checkpoint gives back the bits that went in, or is refused."""

import random
import shutil

import jax
import numpy as np
import pytest

from esopt_jax.core.digest import digest
from esopt_jax.core.master import make_master
from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.training.checkpoints import restore_checkpoint, save_checkpoint, saved_checkpoints, set_aside, shapes_of
from esopt_jax.types import LeafSpec

SPECS = (
    LeafSpec("layers.0.in_proj.weight#q", (24, 40), (None, None), 1, "normal", "w"),
    LeafSpec("layers.0.norm.weight", (40,), (None,), 0, "ones", "n"),
    LeafSpec("layers.0.A_log", (3,), (None,), 0, "decay", "a", keep_float32=True),
)


def make(seed, format="float32"):
    keys = jax.random.split(jax.random.key(seed), len(SPECS))
    params = {s.path: jax.random.normal(k, s.shape) for k, s in zip(keys, SPECS, strict=True)}
    return make_master(params, specs=SPECS, format=format)


def bits(master):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(master)]


MARK = digest(make(0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("saved") / "checkpoints"
    save_checkpoint(root, make(0), updates=7, keep=2)
    return root


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoints")


@pytest.mark.parametrize("format", ["float32", "split", "bfloat16"])
def test_every_bit_comes_back(tmp_path, format):
    master = make(1, format)
    save_checkpoint(tmp_path, master, updates=3, keep=2)
    found = restore_checkpoint(tmp_path, 3, digest(master), like=shapes_of(make(2, format)))
    assert bits(found) == bits(master)
    assert jax.tree.structure(found) == jax.tree.structure(master)


def test_the_newest_are_kept(tmp_path):
    for updates in (1, 2, 3, 10):
        save_checkpoint(tmp_path, make(updates), updates=updates, keep=2)
    assert saved_checkpoints(tmp_path) == [10, 3]
    assert bits(restore_checkpoint(tmp_path, 3, digest(make(3)), like=shapes_of(make(0)))) == bits(make(3))


def test_longer_ones_neither_count_nor_go(tmp_path):
    """They are of a history that was cut back; resuming sets them aside."""
    for updates in (20, 30, 5, 10, 15):
        save_checkpoint(tmp_path, make(0), updates=updates, keep=2)
    assert saved_checkpoints(tmp_path) == [30, 20, 15, 10]
    for updates in (20, 30):
        set_aside(tmp_path, updates)
    assert saved_checkpoints(tmp_path) == [15, 10]
    assert sorted(p.name for p in tmp_path.glob("*.damaged")) == ["after_00020.damaged", "after_00030.damaged"]


def test_room_is_made_before_it_is_looked_for(tmp_path, monkeypatch):
    """What a killed run left half written must not keep the next one from writing."""
    leftover = tmp_path / "checkpoints" / "after_00001.partial"
    leftover.mkdir(parents=True)
    usage = type("usage", (), {"free": property(lambda self: 0 if leftover.exists() else 10**9)})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage())
    save_checkpoint(tmp_path / "checkpoints", make(0), updates=2, keep=2)
    assert saved_checkpoints(tmp_path / "checkpoints") == [2]


def test_sha256sum_reads_the_sums(saved):
    import subprocess

    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=saved / "after_00007", check=True)


def test_one_that_is_not_complete_does_not_count_and_is_cleared_away(tmp_path):
    class Killed(BaseException):
        pass

    def at(moment):
        if moment == "before_sums":
            raise Killed

    with pytest.raises(Killed):
        save_checkpoint(tmp_path, make(0), updates=1, keep=2, at=at)
    assert [p.name for p in tmp_path.iterdir()] == ["after_00001.partial"] and saved_checkpoints(tmp_path) == []
    save_checkpoint(tmp_path, make(0), updates=1, keep=2)
    assert [p.name for p in tmp_path.iterdir()] == ["after_00001"]


def files(root):
    return sorted(p for p in root.rglob("*") if p.is_file())


def test_of_200_flipped_bits_none_is_restored_silently(copy):
    draw, touched = random.Random(0), set()
    everything = files(copy)
    assert len(everything) > 8
    for _ in range(200):
        path = draw.choice(everything)
        text = path.read_bytes()
        if not text:
            continue
        changed = bytearray(text)
        changed[draw.randrange(len(text))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        touched.add(path)
        with pytest.raises(EsoptError, match=r"checkpoint '.*after_00007' cannot be used: "):
            restore_checkpoint(copy, 7, MARK, like=shapes_of(make(0)))
        path.write_bytes(text)
    assert touched == {path for path in everything if path.stat().st_size}
    assert bits(restore_checkpoint(copy, 7, MARK, like=shapes_of(make(1)))) == bits(make(0))


def test_every_file_cut_short_or_missing_is_found(copy):
    for path in files(copy):
        text = path.read_bytes()
        for rest in (text[: len(text) // 2], None):
            if rest is None:
                path.unlink()
            elif rest == text:
                continue  # an empty file has no half
            else:
                path.write_bytes(rest)
            with pytest.raises(EsoptError, match="cannot be used"):
                restore_checkpoint(copy, 7, MARK, like=shapes_of(make(0)))
            path.write_bytes(text)


def test_sound_checkpoints_of_other_weights_are_refused(copy):
    with pytest.raises(EsoptError, match="it belongs to another history"):
        restore_checkpoint(copy, 7, digest(make(1)), like=shapes_of(make(0)))
    (copy / "after_00007").rename(copy / "after_00008")
    with pytest.raises(EsoptError, match="it belongs to another history"):
        restore_checkpoint(copy, 8, MARK, like=shapes_of(make(0)))


def test_weights_that_changed_with_their_sums_are_refused(copy, tmp_path):
    """Somebody put other weights there, and made the sums anew."""
    from esopt_jax.training import checkpoints

    save_checkpoint(tmp_path / "other", make(1), updates=7, keep=1)
    folder = copy / "after_00007"
    shutil.rmtree(folder / "weights")
    shutil.copytree(tmp_path / "other" / "after_00007" / "weights", folder / "weights")
    (folder / "SHA256SUMS").unlink()
    lines = [f"{checkpoints._sha256(p)}  {p.relative_to(folder)}" for p in files(folder)]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    with pytest.raises(EsoptError, match="the digest of its weights is"):
        restore_checkpoint(copy, 7, MARK, like=shapes_of(make(0)))


def test_one_that_cannot_be_written_stops_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoppedError, match=r"checkpoint '.*' cannot be written: "):
        save_checkpoint(tmp_path / "file" / "checkpoints", make(0), updates=1, keep=2)
