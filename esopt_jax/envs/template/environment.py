"""YourGame, a start for an environment of your own: fill in a 4x4 Sudoku; the first wrong move ends the episode."""

import random
from itertools import permutations

from esopt_jax.types import Observation, Step, Task

GRID = "1234341221434321"


class YourGame:
    """What a config writes under `env.options` arrives here; what changes in an episode belongs in its state."""

    success_at = 1.0  # an episode is a success when its last reward is at least this

    def __init__(self, blanks: int = 2):
        self.blanks = blanks

    def tasks(self, split: str) -> list[Task]:
        """All there is to solve, in a fixed order. Nothing held out for "eval" is in "train"."""
        orders = ["".join(order) for order in permutations("1234")]
        mine = orders[6:] if split == "train" else orders[:6]
        return [Task(f"{split}-{i}", (mine[i % len(mine)], i)) for i in range(256)]

    def reset(self, task: Task, seed: int) -> tuple[tuple[str, str], Observation]:
        """Start an episode: a state of any type, and what the agent reads. All that is random follows from `seed`."""
        solution = GRID.translate(str.maketrans("1234", task.data[0]))
        gaps = random.Random(f"{task.id}/{seed}").sample(range(16), self.blanks)
        board = "".join("." if i in gaps else digit for i, digit in enumerate(solution))
        return (solution, board), self._ask(board)

    def step(self, state: tuple[str, str], action: str) -> Step:
        """Judge any text, and return a new state; the old one stays as it is."""
        solution, board = state
        move = action.rpartition("</think>")[2].split()
        right = [["set", str(i // 4 + 1), str(i % 4 + 1), solution[i]] for i in range(16) if board[i] == "."]
        if move not in right:
            return Step(state, None, 0.0, True, {"invalid": move[:1] != ["set"]})
        cell = 4 * int(move[1]) + int(move[2]) - 5
        board = board[:cell] + solution[cell] + board[cell + 1 :]
        done = "." not in board
        return Step((solution, board), None if done else self._ask(board), float(done), done, {})

    def _ask(self, board: str) -> Observation:
        """`mode="fresh"` makes it a prompt of its own; with "append" the agent still sees what came before."""
        rows = "\n".join(board[i : i + 4] for i in range(0, 16, 4))
        return Observation(({"role": "user", "content": rows},), mode="fresh")
