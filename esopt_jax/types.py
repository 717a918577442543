"""The contracts between the parts: names, shapes, leaf specifications and the environment protocol.

Shape letters used in every docstring of the package:

    P  members of the population          M  members in one pass
    C  cases (tasks) a member plays       B  rows, i.e. concurrent sequences (B = C for one member)
    T  tokens of a segment                S  capacity of a cache in tokens
    V  vocabulary                         D  width of the model
    R  rank of a low-rank perturbation

This module imports nothing but the standard library at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import jax

Key: TypeAlias = "jax.Array"
"""A typed threefry2x32 key, shape `[]`."""

Params: TypeAlias = "dict[str, jax.Array]"
"""Weights: canonical leaf path -> array. The paths are those of the model's `LeafSpec` table."""

View: TypeAlias = "dict[str, Any]"
"""What the forward pass reads: canonical leaf path -> array or `core.perturb.Factored`."""

Master: TypeAlias = "dict[str, Any]"
"""What the update writes: canonical leaf path -> array or `core.master.Split`."""

Fitness: TypeAlias = "jax.Array"
"""`[P]` float32, higher is better."""

Plan = Literal["full", "low_rank"]
MasterFormat = Literal["float32", "split", "bfloat16"]
Rounding = Literal["nearest", "stochastic"]

NOISE_SPEC = 1
"""Version of the noise specification that `core.noise` implements."""


class Purpose:
    """First fold-in of every key: what the randomness is for."""

    NOISE = 0
    SAMPLING = 1
    CASES = 2
    ENVIRONMENT = 3
    ROUNDING = 4
    CONTROL = 5
    ADAPTER = 6
    BATCHES = 7


@dataclass(frozen=True)
class LeafSpec:
    """One row of the table that drives init, load, save, sharding and noise.

    Attributes:
        path: canonical leaf path: the Hugging Face name without its `model.` or `language_model.` prefix, with
            `#part` appended where one tensor was split (`layers.0.linear_attn.in_proj_qkv.weight#q`).
        shape: logical, unpadded shape of the leaf as this package stores it.
        axes: one logical axis name per dimension (`"embed"`, `"vocab"`, `"mlp"`, `"kv_heads"`, ...) or None. The mesh
            rules of `models.sharding` map them to mesh axes.
        inputs: how many leading dimensions are the rows of the matrix form: `[prod(shape[:inputs]),
            prod(shape[inputs:])]`. 0 marks a vector leaf (norm gains, `A_log`, `dt_bias`, conv taps), whose noise is
            always full rank. Embeddings and head are `[V, D]`, `inputs` 1.
        init: `"normal"`, `"zeros"`, `"ones"` or `"decay"` (the `A_log` initialiser).
        hf_name: tensor name in a text-only Hugging Face file.
        part: which piece of the Hugging Face tensor this leaf is; None when it is the whole tensor.
        group: family for per-group sigma multipliers: `"matrix"`, `"embedding"`, `"norm"`, `"gate"` or `"conv"`; the
            adapters of a run are `"adapter"`.
        keep_float32: stored in float32 whatever the format of the weights.
    """

    path: str
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    inputs: int
    init: str
    hf_name: str
    part: str | None = None
    group: str = "matrix"
    keep_float32: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def is_matrix(self) -> bool:
        """Whether the leaf has a matrix form, and so a low-rank perturbation."""
        return self.inputs > 0

    @property
    def noise_form(self) -> tuple[int, int]:
        """`(rows, columns)` over which noise is drawn: the matrix form; a 1-D leaf is one row."""
        split = self.inputs if self.inputs else (1 if len(self.shape) > 1 else 0)
        rows = 1
        for d in self.shape[:split]:
            rows *= d
        return rows, self.size // rows


Specs: TypeAlias = tuple[LeafSpec, ...]


# --- environments -----------------------------------------------------------------------------------------------------

Message: TypeAlias = Mapping[str, str]
"""One chat message: `{"role": ..., "content": ...}`."""


@dataclass(frozen=True)
class Task:
    """One case an agent can be asked to solve. `data` belongs to the environment."""

    id: str
    data: Any = None


@dataclass(frozen=True)
class Observation:
    """What the agent reads before it acts.

    `mode` `"append"`: the messages are added to the conversation, whose tokens and state are kept.
    `mode` `"fresh"`: the messages are a new, stateless prompt.
    """

    messages: tuple[Message, ...]
    mode: Literal["append", "fresh"] = "fresh"


class Step(NamedTuple):
    """What `Environment.step` returns; a plain 5-tuple is accepted.

    `observation` is None when `done`. `info["invalid"]` marks an action that the environment rejected.
    `info["board"]`, lines of text or a list of them, is drawn by `esopt view`.
    """

    state: Any
    observation: Observation | None
    reward: float
    done: bool
    info: Mapping[str, Any]


@runtime_checkable
class Environment(Protocol):
    """A multi-turn task, host-side, without jax.

    An exception or a time-out is an infrastructure error, never a reward. An episode is a success when its terminal
    reward is at least `success_at` (1.0 unless the environment has such an attribute).
    """

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of `"train"` or `"eval"`, in a fixed order."""
        ...

    def reset(self, task: Task, seed: int) -> tuple[Any, Observation]:
        """Start an episode; everything random in it follows from `seed`."""
        ...

    def step(self, state: Any, action: str) -> Step:
        """Apply the agent's text to `state` and return the next one; `state` itself is not changed."""
        ...


Outcome = Literal["success", "failure", "error"]


@dataclass(frozen=True)
class Turn:
    """One exchange: what the agent read, what it wrote, what came of it.

    `fresh`: it forgot everything before; else the prompt goes on from the reply before it.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    text: str
    reward: float
    invalid: bool
    truncated: bool
    seconds: float
    info: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = True


@dataclass(frozen=True)
class Trajectory:
    """One episode of one member on one task. `member` -1 is the unperturbed model.

    `reward` is the sum over turns; `terminal_reward` the last one, which alone decides success. For outcome `"error"`
    both are NaN and `error` says what happened.
    """

    generation: int
    member: int
    case: int
    task_id: str
    episode: int
    turns: tuple[Turn, ...]
    outcome: Outcome
    reward: float
    terminal_reward: float
    error: str | None = None
