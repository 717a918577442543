"""Questions about three words, each to be answered with one of them and nothing else: for pretrained models.

    Which is an animal: hammer, dog or cherry?  ->  dog
    And which is a tool?                        ->  hammer

The conversation grows: from the second turn on the words stand in what was read before. A pretrained model knows the
answers, but wraps them into sentences.

A turn scores `(right + brief) / 2`. `right` is 1 if the reply has the asked word and neither of the others, else 0;
`brief` is `1 / words` of the reply, 0 for an empty one. The reward of an episode is the mean over its turns, paid at
the end; it is a success where that is 1, which takes the bare word at every turn. Case and punctuation do not count.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from esopt_jax.errors import EsoptError
from esopt_jax.types import Observation, Step, Task

KINDS = {
    "an animal": "dog cat horse cow sheep goat pig lion bear wolf rabbit monkey",
    "a color": "red blue green yellow black white brown purple pink silver golden violet",
    "a fruit": "apple banana cherry lemon peach pear plum grape mango strawberry kiwi papaya",
    "a tool": "hammer saw drill wrench shovel axe rake ladder knife scissors broom brush",
    "a vehicle": "car bus truck train bicycle airplane boat ship motorcycle van taxi tractor",
    "clothing": "shirt hat coat sock glove shoe dress skirt jacket trousers boot belt",
    "furniture": "chair table bed desk shelf bench stool couch cabinet sofa crib cupboard",
    "a country": "France Germany Spain Italy Japan China India Brazil Canada Mexico Egypt Norway",
    "a body part": "hand foot head arm leg nose ear eye knee elbow shoulder finger",
    "a drink": "water milk tea coffee juice wine beer lemonade soda cider rum cocoa",
}
"""12 words a kind, of which every fourth is held out: those are never in a training task."""

_SYSTEM = {"role": "system", "content": "Reply with one word."}


@dataclass(frozen=True)
class OneWord:
    """`turns` questions an episode (1 to 3), `count` tasks a split.

    Raises:
        EsoptError: `turns` is not 1, 2 or 3, or `count` is not a whole number of at least 1.
    """

    turns: int = 3
    count: int = 256

    def __post_init__(self) -> None:
        if self.turns not in (1, 2, 3):
            raise EsoptError(f"turns is {self.turns!r}; it must be 1, 2 or 3, since a task has three words")
        if not isinstance(self.count, int) or self.count < 1:
            raise EsoptError(f"count is {self.count!r}; it must be a whole number, 1 or more")

    def tasks(self, split: str) -> Sequence[Task]:
        """A task is its words and, in the order they are asked for, `(kind, word)`."""
        return [Task(f"oneword-{split}-{i:03d}", _draw(split, i)) for i in range(self.count)]

    def reset(self, task: Task, seed: int) -> tuple[tuple[Task, tuple[float, ...]], Observation]:
        """Nothing is random. The state: the task and the scores of the turns so far."""
        words, questions = task.data
        first = {"role": "user", "content": f"Which is {questions[0][0]}: {words[0]}, {words[1]} or {words[2]}?"}
        return (task, ()), Observation((_SYSTEM, first), mode="append")

    def step(self, state: tuple[Task, tuple[float, ...]], action: str) -> Step:
        """Score the reply; the last turn pays the mean."""
        task, scores = state
        words, questions = task.data
        answer = questions[len(scores)][1]
        value, right, count = score(action, answer, [word for word in words if word != answer])
        scores = (*scores, value)
        done = len(scores) == self.turns
        info = {"invalid": count != 1, "right": right, "words": count}
        if done:
            return Step((task, scores), None, sum(scores) / self.turns, True, info)
        follow_up = {"role": "user", "content": f"And which is {questions[len(scores)][0]}?"}
        return Step((task, scores), Observation((follow_up,), mode="append"), 0.0, False, info)


def score(reply: str, answer: str, others: Sequence[str]) -> tuple[float, bool, int]:
    """The score of a reply, whether it is right, and how many words it has.

    Example:
        >>> score("Dog.", "dog", ["hammer", "cherry"])
        (1.0, True, 1)
        >>> score("It is a dog", "dog", ["hammer", "cherry"])
        (0.625, True, 4)
        >>> score("Hammer", "dog", ["hammer", "cherry"]), score("", "dog", [])
        ((0.5, False, 1), (0.0, False, 0))
    """
    said = re.findall(r"\w+", reply.rpartition("</think>")[2].lower())
    right = answer.lower() in said and not any(other.lower() in said for other in others)
    return (right + 1 / len(said)) / 2 if said else 0.0, right, len(said)


def _draw(split: str, index: int) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Three words of three kinds, and the order in which they are asked for."""
    rng = random.Random(f"{split}/{index}")
    kept = [i for i in range(12) if (i % 4 == 3) == (split == "eval")]
    questions = [(kind, KINDS[kind].split()[rng.choice(kept)]) for kind in rng.sample(sorted(KINDS), 3)]
    words = [word for _, word in questions]
    rng.shuffle(words)
    return tuple(words), tuple(questions)
