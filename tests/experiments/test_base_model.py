"""The recipe of the shipped base: its lessons against brute force, its files against the shipped ones, its loss."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esopt_jax.envs.sudoku_action import Feedback
from esopt_jax.envs.sudoku_grids import split_grids_4x4, units
from esopt_jax.envs.sudoku_prompts import compact
from esopt_jax.envs.sudoku_puzzles import Puzzle
from esopt_jax.models.load import load_model, resolve_folder
from esopt_jax.models.qwen3_5_config import FULL, LINEAR
from esopt_jax.models.registry import leaf_specs, parse_architecture, score
from esopt_jax.rollouts.chat import load_chat

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments" / "base_model"))  # its files import each other as siblings

import crowd  # noqa: E402
import model_folder  # noqa: E402
import pretrain  # noqa: E402
from tokenizer import VOCABULARY, write_tokenizer  # noqa: E402

SHIPPED = resolve_folder("builtin:sudoku-4x4")
BOARDS = 100
VERDICTS = (None, "format", "range", "given", "filled")


@pytest.fixture(scope="module")
def boards():
    draw = partial(crowd.draw_boards, count=BOARDS, blanks=8, wrong_share=0.3, verdict_share=0.5)
    return jax.jit(draw)(jax.random.key(3), crowd.grids("train"))


@pytest.fixture(scope="module")
def lesson(boards):
    make = partial(crowd.make_lesson, looks=2, guesses=1, p_careful=0.3)
    return jax.jit(make)(jax.random.key(4), boards)


def _fitting(cells: np.ndarray) -> dict[int, set[int]]:
    """Blank -> digits that no cell of its row, column or box holds."""
    seen = {i: {cells[j] for unit in units(4) if i in unit for j in unit} for i in range(16)}
    return {i: {1, 2, 3, 4} - seen[i] for i in range(16) if cells[i] == 0}


def _moves(cells: np.ndarray, solution: np.ndarray, careful: bool) -> dict[tuple[int, int, int], float]:
    """(row, column, digit), from 0 -> probability, by enumeration."""
    fitting = _fitting(cells)
    if not careful:
        options = [(i, digit) for i in fitting for digit in (1, 2, 3, 4)]
    else:
        options = [(i, *digits) for i, digits in fitting.items() if len(digits) == 1]
        options = options or [(i, solution[i]) for i in fitting]
    weights = [4.0 ** -_crowding(cells, i) if careful else 1.0 for i, _ in options]
    moves = {(i // 4, i % 4, int(digit) - 1): w / sum(weights) for (i, digit), w in zip(options, weights, strict=True)}
    assert len(moves) == len(options)
    return moves


def _crowding(cells: np.ndarray, i: int) -> int:
    """Other blanks in the row, the column and the box of cell `i`; one that shares two of them counts twice."""
    return sum(cells[j] == 0 for unit in units(4) if i in unit for j in unit if j != i)


def test_targets_are_the_conditional_distributions_of_the_players(boards, lesson):
    targets, replies = np.asarray(lesson.targets, np.float64), np.asarray(lesson.replies)
    np.testing.assert_allclose(targets.sum(-1), 1, atol=1e-6)
    for n in range(replies.shape[1]):
        b = n // 3
        careful = bool(lesson.careful[n])
        moves = _moves(np.asarray(boards.cells[b]), np.asarray(boards.solution[b]), careful)
        said = tuple(int(token) - crowd.ONE for token in replies[3:, n])
        assert said in moves
        for depth in range(3):
            expected = np.zeros(4)
            for move, p in moves.items():
                if move[:depth] == said[:depth]:
                    expected[move[depth]] += p
            found = targets[2 + depth, n, crowd.ONE : crowd.ONE + 4]
            np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-6)


def test_replies_are_written_in_the_action_grammar(lesson):
    words = {token: text for text, token in VOCABULARY.items()}
    chat = load_chat(SHIPPED, thinking=True)
    for n, reply in enumerate(np.asarray(lesson.replies).T[:30]):
        word = "look" if lesson.careful[n] else "guess"
        assert chat.text(tuple(map(int, reply))) == f"{word}</think>set" + "".join(words[int(t)] for t in reply[3:])
        after = np.asarray(lesson.targets[:, n]).argmax(-1)
        assert [words[int(t)] for t in after[[0, 1, 5]]] == ["</think>", "set", "<|im_end|>"]
    first = {words[i]: float(p) for i, p in enumerate(lesson.first) if p}
    assert first == pytest.approx({"look": 0.3, "guess": 0.7})


def test_both_players_reply_to_each_board(lesson):
    assert lesson.careful.reshape(-1, 3).tolist() == [[True, True, False]] * BOARDS


def test_prompts_are_what_the_agent_will_read(boards):
    tokens, lengths = crowd.encode(boards)
    puzzle = Puzzle(4, 0, "", "")
    texts = []
    for cells, verdict in zip(np.asarray(boards.cells), np.asarray(boards.verdict), strict=True):
        board = "".join(".1234"[cell] for cell in cells)
        feedback = Feedback(VERDICTS[verdict]) if verdict else None
        texts.append([{"role": "user", "content": compact(puzzle, board, 0, feedback)}])
    for row, length, ids in zip(
        tokens.tolist(), lengths.tolist(), load_chat(SHIPPED, thinking=True).prompts(texts), strict=True
    ):
        assert tuple(row[:length]) == ids
    assert set(lengths.tolist()) == {28, 30}


def test_only_training_grids_are_taught_and_only_held_out_ones_measured(boards):
    taught = {"".join(map(str, row)) for row in boards.solution.tolist()}
    assert taught <= set(split_grids_4x4("train"))
    assert {"".join(map(str, row)) for row in crowd.grids("eval").tolist()} == set(split_grids_4x4("eval"))
    measured = np.asarray(pretrain.held_out_lesson().prompts)
    # A board that is nearly full shows its grid; a training grid among them would agree with a prompt in every cell.
    cells = measured[:, [3 + 5 * r + c for r in range(4) for c in range(4)]]
    blank = crowd.CELL_IDS[0]
    agrees = {}
    for split in ("train", "eval"):
        solutions = crowd.CELL_IDS[np.asarray(crowd.grids(split))][:, None]
        agrees[split] = ((solutions == cells) | (cells == blank)).all(-1).any(0)
    assert agrees["eval"].all()
    assert agrees["train"].mean() < 0.5


def test_boards_are_as_asked_for(boards):
    blanks = (np.asarray(boards.cells) == 0).sum(1)
    assert blanks.min() >= 1
    assert blanks.max() == 8
    wrong = ((boards.cells != 0) & (boards.cells != boards.solution)).any(1)
    assert 0.1 < float(wrong.mean()) < 0.3  # a random digit is the right one in a quarter of the cells
    assert 0.35 < float((boards.verdict > 0).mean()) < 0.65


def test_rebuilt_tokenizer_equals_the_shipped_one(tmp_path):
    write_tokenizer(tmp_path)
    written = sorted(tmp_path.iterdir())
    assert {file.name for file in written} == {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    for file in written:
        assert file.read_bytes() == (SHIPPED / file.name).read_bytes(), file.name


def test_folder_is_the_shipped_one_but_for_its_weights(tmp_path):
    arch = parse_architecture(model_folder.CONFIG)
    params = pretrain.draw_params(jax.random.key(0), arch)
    model_folder.write_model(tmp_path / "out", params, leaf_specs(arch))
    names = {file.name for file in SHIPPED.iterdir()}
    assert {file.name for file in (tmp_path / "out").iterdir()} == names
    for name in names - {"model.safetensors"}:
        assert (tmp_path / "out" / name).read_bytes() == (SHIPPED / name).read_bytes(), name
    loaded = load_model(tmp_path / "out")
    assert loaded.vocab_limit == arch.vocab_size == 128
    assert loaded.eos_ids == (VOCABULARY["<|endoftext|>"], VOCABULARY["<|im_end|>"])
    assert all((loaded.params[path] == leaf).all() for path, leaf in params.items())


def test_fresh_weights_keep_the_scale_of_the_stream():
    arch = parse_architecture(model_folder.CONFIG)
    params = pretrain.draw_params(jax.random.key(0), arch)
    assert float(params["layers.1.mlp.up_proj.weight"].std()) == pytest.approx(48**-0.5, rel=0.1)
    assert float(params["layers.1.mlp.down_proj.weight"].std()) == pytest.approx(0.5 * 96**-0.5, rel=0.1)
    pace = jax.nn.softplus(params["layers.0.linear_attn.dt_bias"])
    assert ((pace > 0.0099) & (pace < 0.301)).all()
    assert len(set(pace.tolist())) == arch.linear_num_value_heads


@pytest.fixture(scope="module")
def small():
    full = parse_architecture(model_folder.CONFIG)
    return replace(full, hidden_size=16, intermediate_size=16, num_hidden_layers=2, layer_types=(LINEAR, FULL))


def test_loss_equals_that_of_whole_sequences(small, lesson):
    """Sharing the reading of a prompt among its replies changes nothing."""
    params = pretrain.draw_params(jax.random.key(1), small)
    loss, scores = jax.jit(lambda p: pretrain.losses(p, lesson, arch=small))(params)
    lengths = np.repeat(np.asarray(lesson.lengths), 3)
    tokens = np.pad(np.repeat(np.asarray(lesson.prompts), 3, axis=0), ((0, 0), (0, 6)))
    places = lengths[:, None] + np.arange(6)
    np.put_along_axis(tokens, places, np.asarray(lesson.replies).T, axis=1)
    logits = jax.jit(lambda p: score(p, jnp.asarray(tokens), jnp.asarray(lengths + 6), arch=small))(params)
    log_p = np.asarray(jax.nn.log_softmax(logits), np.float64)
    log_p = np.take_along_axis(log_p, (lengths[:, None] - 1 + np.arange(7))[..., None], axis=1)
    targets = np.concatenate([np.broadcast_to(lesson.first, (1, 3 * BOARDS, 128)), lesson.targets]).swapaxes(0, 1)
    divergence = (targets * (np.log(np.maximum(targets, 1e-30)) - log_p)).sum(-1)
    inside = (np.exp(log_p) * (targets > 0)).sum(-1)[:, 1:]
    expected = pretrain.FIRST_WEIGHT * divergence[:, 0] + divergence[:, 1:].sum(1)
    expected = expected - pretrain.OUTSIDE_WEIGHT * np.log(inside).sum(1)
    assert float(loss) == pytest.approx(expected.mean(), rel=1e-5)
    careful = np.asarray(lesson.careful)
    assert float(scores.mistake) == pytest.approx((1 - inside.prod(1))[careful].mean(), rel=1e-5)
    assert float(scores.careful) == pytest.approx(divergence[:, 1:].sum(1)[careful].mean(), rel=1e-5)


def test_a_few_steps_reduce_the_loss(small):
    smaller = replace(small, num_hidden_layers=1, layer_types=(FULL,))
    progress = [progress for progress, _ in pretrain.pretrain(0, smaller, steps=12, log_every=4)]
    assert [p.step for p in progress] == [4, 8, 12]
    assert progress[-1].loss < progress[0].loss
    assert progress[-1].plain.careful < progress[0].plain.careful
    assert all(np.isfinite([p.loss, *jax.tree.leaves(p.noisy)]).all() for p in progress)
