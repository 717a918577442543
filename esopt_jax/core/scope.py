"""Which leaves a run tunes. All others keep every bit, cost no noise, and are shared by all members."""

from __future__ import annotations

import re

from esopt_jax.errors import EsoptError
from esopt_jax.types import Specs

PATTERN = "pattern:"


def tuned_specs(specs: Specs, scope: str) -> Specs:
    r"""The leaves in `scope`, in the order of the table.

    Args:
        specs: the leaf table.
        scope: `full`; `all_linear`, the projections of attention, DeltaNet and MLP, not tables, norms, gates or
            convolutions; or `pattern:REGEX`, every leaf in whose canonical path the expression is found.

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
    elif scope.startswith(PATTERN):
        expression = re.compile(scope.removeprefix(PATTERN))
        found = tuple(spec for spec in specs if expression.search(spec.path))
    else:
        raise EsoptError(f"es.scope is {scope!r}; it must be full, all_linear or pattern:REGEX")
    if not found:
        paths = ", ".join(spec.path for spec in specs[:3])
        raise EsoptError(f"es.scope is {scope!r}, which no leaf of the model is in; its leaves are {paths}, ...")
    return found
