"""The queue in memory."""

from collections.abc import Mapping, Sequence

from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.queue.model import MAX_AHEAD, LaneDepth, Owned, QueueDepth, QueuePosition, WaitingTurn, build_position
from everturn.timeline.turns import TurnStatus
from everturn_testing.in_memory_platform import MemoryPlatform, TurnRow, same_owner


class MemoryQueue:
    """Implements Queue over the shared rows."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        queued = [row for row in self._platform.turns.values() if row.turn.status is TurnStatus.QUEUED]
        own = [row for row in queued if row.principal.tenant == tenant and row.lane is lane]
        return QueueDepth(len(queued), len(own))

    async def load_lanes(self) -> Mapping[Lane, LaneDepth]:
        now = self._platform.clock.now()
        waiting: dict[Lane, list[float]] = {}
        for row in self._platform.turns.values():
            if row.turn.status is TurnStatus.QUEUED:
                waiting.setdefault(row.lane, []).append((now - row.turn.created_at).total_seconds())
        return {lane: LaneDepth(len(ages_s), max(ages_s)) for lane, ages_s in waiting.items()}

    async def load_positions(self, asked: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        found: dict[ConversationId, WaitingTurn] = {}
        for principal, conversation_id in asked:
            row = self._platform.open_turn(conversation_id)
            if row and row.turn.status is TurnStatus.QUEUED and same_owner(row.principal, principal):
                found[conversation_id] = WaitingTurn(row.turn.id, find_position(self._platform, row))
        return found


def find_position(platform: MemoryPlatform, row: TurnRow) -> QueuePosition:
    """The position of a waiting turn."""
    lane = platform.waiting(row.lane)
    rung = [other for other in lane if other.rung is not None]
    if row.rung is not None:
        before = [other for other in rung if (other.rung or 0) < row.rung]
    else:
        own = [other for other in lane if other.rung is None and other.principal.tenant == row.principal.tenant]
        before = [*rung, *own[: own.index(row)]]
    return build_position(min(len(before), MAX_AHEAD + 1))
