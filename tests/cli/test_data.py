import hashlib
import json

import pytest

from esopt_jax.cli.main import main

SHA256 = {
    "train": "cd66364e776831b8c40be9e0b91b38605daee086bfb1dd829ac5b43ae675df59",
    "eval": "10b072c941f2716da1e047cc9068ee5765983c50ab16b6ffe356f59b03a26388",
}


def test_published_files_are_byte_identical(tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    assert main(["data", "sudoku", "--published", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["eval.jsonl", "train.jsonl"]
    said = capsys.readouterr().out
    for split, digest in SHA256.items():
        assert hashlib.sha256((out / f"{split}.jsonl").read_bytes()).hexdigest() == digest
        assert f"{split}.jsonl: 128 puzzles" in said
        assert digest in said


def test_generated_files(tmp_path):
    command = [
        "data",
        "sudoku",
        "--size",
        "9",
        "--mask",
        "3,8",
        "--count",
        "4",
        "--split",
        "eval",
        "--out",
        str(tmp_path),
    ]
    assert main(command) == 0
    (file,) = tmp_path.iterdir()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"eval-00000{i}" for i in range(4)]
    assert [row["puzzle_compact"].count(".") for row in rows] == [3, 8, 3, 8]
    first = file.read_bytes()
    assert main([*command, "--seed", "1", "--force"]) == 0
    assert file.read_bytes() != first


def test_other_contents_are_kept_unless_forced(tmp_path, capsys):
    (tmp_path / "eval.jsonl").write_text("mine\n")
    command = ["data", "sudoku", "--count", "2", "--out", str(tmp_path)]
    assert main(command) == 2
    assert "eval.jsonl would change; choose another --out, or pass --force" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["eval.jsonl"]  # not half of the data set either
    assert (tmp_path / "eval.jsonl").read_text() == "mine\n"
    assert main([*command, "--force"]) == 0
    assert main(command) == 0  # the same contents are in no one's way


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mask", "13"], "mask is [13]; for generated 4x4 puzzles it must be in 1 .. 12"),
        (["--published", "--mask", "5", "--seed", "1"], "--published is one fixed data set; drop --mask, --seed"),
        (["--count", "0"], "--count is 0; it must be at least 1"),
    ],
)
def test_bad_arguments_are_one_line(tmp_path, capsys, arguments, message):
    assert main(["data", "sudoku", "--out", str(tmp_path / "out"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["data", "sudoku", "--count", "1", "--out", str(tmp_path / "file" / "below")]) == 2
    assert "cannot write to" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["data"], ["data", "sudoko"], ["data", "sudoku", "--mask", "five"]])
def test_argparse_errors_exit_2(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
