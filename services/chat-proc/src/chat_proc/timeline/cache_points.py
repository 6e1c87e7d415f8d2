"""Where a request asks the provider to cache: after the system text, and at up to three places of the timeline.

A point lies on text that stays: never on a block that was hidden or made light, and never on a round that is open.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.timeline.view import VisibleBlock
from everturn.model.blocks import BlockType
from everturn.timeline.next_step import DECISION_TYPES
from everturn.timeline.rendering.forms import Form

PRE_TAIL_ROUNDS = 4
"""How far behind the tail the second point lies: a change of the last rounds then still hits the cache before them."""
MIN_ROUNDS = 2
_STABLE = frozenset({Form.FULL, Form.CARD, Form.ROW})


@dataclass(frozen=True, slots=True)
class CachePoints:
    """Indexes of items. `tail` ends the last completed round, or before there is one the opening of the turn."""

    previous_turn: int | None = None
    pre_tail: int | None = None
    tail: int | None = None

    @property
    def indexes(self) -> frozenset[int]:
        return frozenset(at for at in (self.previous_turn, self.pre_tail, self.tail) if at is not None)


def choose_cache_points(items: Sequence[VisibleBlock], turn_at: int) -> CachePoints:
    """`turn_at` is the index of the newest turn's first item. Looks at that turn's last rounds only."""
    previous = next((at for at in range(turn_at - 1, -1, -1) if items[at].form in _STABLE), None)
    ends = _completed_ends(items, turn_at)
    if not ends:
        opening = (at for at in range(len(items) - 1, turn_at - 1, -1) if _is_candidate(items[at]))
        tail = next((at for at in opening if items[at].block.round == 0), None)
        return CachePoints(previous, None, tail)
    pre_tail = ends[-1] if len(ends) >= MIN_ROUNDS else None
    return CachePoints(previous, pre_tail, ends[0])


def first_editable_seq(items: Sequence[VisibleBlock], turn_at: int) -> int:
    """Blocks from this `seq` on may be hidden. What lies before is cached: hiding it would cost more than it saves."""
    points = choose_cache_points(items, turn_at)
    if points.pre_tail is not None:
        return items[points.pre_tail].block.seq + 1
    return items[turn_at].block.seq if turn_at < len(items) else 1


def _completed_ends(items: Sequence[VisibleBlock], turn_at: int) -> list[int]:
    """The ends of the last completed rounds, newest first, at most as many as the pre-tail lies behind the tail."""
    ends: dict[int, int] = {}
    completed: list[int] = []
    for at in range(len(items) - 1, turn_at - 1, -1):
        block = items[at].block
        if block.round == 0 or not _is_candidate(items[at]):
            continue
        if block.round not in ends and len(completed) == PRE_TAIL_ROUNDS + 1:
            break
        ends.setdefault(block.round, at)
        if block.type in DECISION_TYPES and block.round not in completed:
            completed.append(block.round)
    return [ends[number] for number in completed]


def _is_candidate(item: VisibleBlock) -> bool:
    return item.form is Form.FULL and item.block.type is not BlockType.RANGE_SUMMARY
