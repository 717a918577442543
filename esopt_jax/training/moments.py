"""The ten moments at which a run that is killed leaves its folder in a different state.

`train` and `resume` call `at(moment)` when they get there. It does nothing by default; the tests of durability end the
process there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias


class Moment(StrEnum):
    """Where a run is. In the order in which a generation passes them, after the first two."""

    COMPILE = "compile"
    """The history has its header; nothing has been compiled."""
    EVALUATION = "evaluation"
    """Held-out episodes have been played, their score is not written."""
    BEFORE_ROW = "before_row"
    """The population has played, the history does not know it."""
    HALF_ROW = "half_row"
    """Half of a generation's row is in the file."""
    AFTER_ROW = "after_row"
    """The generation's row is on the disk, the update has not begun."""
    UPDATE = "update"
    """The update has been dispatched, its result is not there."""
    BEFORE_APPLIED = "before_applied"
    """The weights have moved, the history does not say so."""
    AFTER_APPLIED = "after_applied"
    """The history says so, the metrics do not."""
    CHECKPOINT = "checkpoint"
    """The weights of a checkpoint are partly on the disk."""
    BEFORE_SUMS = "before_sums"
    """They are on the disk, without checksums and not under their name."""


At: TypeAlias = Callable[[Moment], None]
"""What is called at a moment."""


def pass_by(_: Moment) -> None:
    """Do nothing."""
