"""Two sides measured in turn, as the numbers that every benchmark here reports."""

import statistics
from collections.abc import Sequence
from typing import Any


def compared(ours: Sequence[float], theirs: Sequence[float], *, digits: int) -> dict[str, Any]:
    """Medians of both sides' speeds, the median of their ratio round by round, and its quartiles as `spread`.

    Args:
        ours: speed of each round; higher is better.
        theirs: the other side's in the same rounds.
        digits: of the medians.
    """
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        "ours": round(statistics.median(ours), digits),
        "theirs": round(statistics.median(theirs), digits),
        "ratio": round(statistics.median(ratios), 2),
        "spread": [round(quartiles[0], 2), round(quartiles[2], 2)],
    }
