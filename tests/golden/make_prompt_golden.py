"""Regenerate `prompts/*.txt`, what a Sudoku agent reads: run this file, then read the diff before committing it.

Each file shows turn 1 and then turn 2 after every kind of first action.
"""

from pathlib import Path

from esopt_jax.envs.sudoku import Sudoku

FOLDER = Path(__file__).parent / "prompts"
CASES = {f"{prompt}_{size}x{size}": (prompt, size) for prompt in ("published", "compact") for size in (4, 9)}


def render(prompt, size):
    """The text of one golden file."""
    env = Sudoku(prompt=prompt, size=size, mask=5, train_tasks=1)
    state, observation = env.reset(env.tasks("train")[0], 0)
    puzzle = state.puzzle

    def at(cell, digit):
        return f"set {cell // size + 1} {cell % size + 1} {digit}"

    blank = puzzle.givens.index(".")
    given = next(i for i, digit in enumerate(puzzle.givens) if digit != ".")
    placed = env.step(state, at(blank, puzzle.solution[blank]))
    actions = {
        "placed": env.step(state, at(blank, puzzle.solution[blank])),
        "format": env.step(state, "I would fill the first cell."),
        "range": env.step(state, f"set {size + 1} 1 1"),
        "given": env.step(state, at(given, 1)),
        "filled": env.step(placed.state, at(blank, 1)),
    }
    parts = [f"=== turn 1 ===\n{_text(observation)}\n"]
    for verdict, step in actions.items():
        assert step.info["verdict"] == verdict
        turn = 3 if verdict == "filled" else 2
        parts.append(f"=== turn {turn}, last action: {verdict} ===\n{_text(step.observation)}\n")
    return "".join(parts)


def _text(observation):
    (message,) = observation.messages
    assert message["role"] == "user"
    return message["content"]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, (prompt, size) in CASES.items():
        (FOLDER / f"{name}.txt").write_text(render(prompt, size), encoding="utf-8")
