"""Which leaves a run tunes. All others keep every bit, cost no noise, and are shared by all members."""

from __future__ import annotations

import re

from esopt_jax.errors import EsoptError
from esopt_jax.types import Specs

PATTERN, LORA = "pattern:", "lora:"
ADAPTER = "adapter"
"""Group of the leaves that low-rank adapters add to a table."""


def tuned_specs(specs: Specs, scope: str) -> Specs:
    r"""The leaves in `scope`, in the order of the table.

    Args:
        specs: the leaf table.
        scope: `full`; `all_linear`, the projections of attention, DeltaNet and MLP, not tables, norms, gates or
            convolutions; `pattern:REGEX`, every leaf in whose canonical path the expression is found; or `lora:RANK`
            and `lora:RANK:REGEX`, the adapters of a table that has them.

    Raises:
        EsoptError: no such scope, or no leaf in it.

    Example:
        >>> from esopt_jax.types import LeafSpec
        >>> specs = tuple(LeafSpec(f"layers.{i}.w", (2, 2), (None, None), 1, "normal", "w") for i in range(3))
        >>> [spec.path for spec in tuned_specs(specs, r"pattern:layers\.[02]\.")]
        ['layers.0.w', 'layers.2.w']
    """
    if scope == "full":
        return specs
    if scope == "all_linear":
        found = tuple(spec for spec in specs if spec.group == "matrix")
    elif adapter_scope(scope) is not None:
        found = tuple(spec for spec in specs if spec.group == ADAPTER)
    elif scope.startswith(PATTERN):
        expression = re.compile(scope.removeprefix(PATTERN))
        found = tuple(spec for spec in specs if expression.search(spec.path))
    else:
        raise EsoptError(
            f"es.scope is {scope!r}; it must be full, all_linear, pattern:REGEX, lora:RANK or lora:RANK:REGEX"
        )
    if not found:
        paths = ", ".join(spec.path for spec in specs[:3])
        raise EsoptError(f"es.scope is {scope!r}, which no leaf of the model is in; its leaves are {paths}, ...")
    return found


def adapter_scope(scope: str) -> tuple[int, str | None] | None:
    """Rank and targets of a scope of low-rank adapters, None for another scope.

    The targets are an expression that is found in the path of a matrix; None means those of `all_linear`.

    Example:
        >>> adapter_scope("lora:8"), adapter_scope("lora:4:self_attn"), adapter_scope("full")
        ((8, None), (4, 'self_attn'), None)
    """
    if not scope.startswith(LORA):
        return None
    rank, colon, targets = scope.removeprefix(LORA).partition(":")
    return int(rank), targets if colon else None
