"""Where a turn stands in the queue: how many turns of its lane are taken before it."""

from dataclasses import dataclass
from typing import Final

MAX_AHEAD: Final = 100
"""Nobody is told a larger number, so that finding out costs the same however long the queue is."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """`ahead` is 0 for the next one. With `more` there are more than that."""

    ahead: int
    more: bool = False


def build_position(counted: int) -> QueuePosition:
    """Of turns counted up to one more than the maximum."""
    return QueuePosition(min(counted, MAX_AHEAD), counted > MAX_AHEAD)
