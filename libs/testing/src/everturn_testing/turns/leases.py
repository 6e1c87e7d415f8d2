"""Leases in memory; the platform's clock decides when they expire."""

from collections.abc import Mapping
from dataclasses import replace

from everturn.conversations.model import ConversationState
from everturn.core.errors import StaleFence
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.timeline.turns import TurnStatus
from everturn.turns.model import Claim, Lease
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform, TurnRow


class MemoryLeases:
    """Implements Leases for the worker `owner`."""

    def __init__(self, platform: MemoryPlatform, *, owner: str = "worker-1", ttl_s: float = 15.0) -> None:
        self._platform = platform
        self._owner = owner
        self._ttl_s = ttl_s

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        row = self._platform.conversations.get(conversation_id)
        now_s = self._platform.clock.monotonic()
        if row is None or (row.lease_owner is not None and row.lease_ends_s > now_s):
            return None
        open_turn, unannounced = self._find_work(conversation_id)
        if open_turn is None and not unannounced:
            self._platform.end_lease(row)
            return None
        self._platform.end_lease(row)
        row.fence += 1
        row.lease_owner, row.lease_began_s, row.lease_ends_s = self._owner, now_s, now_s + self._ttl_s
        if open_turn is not None:
            row.state = ConversationState.RUNNING
            self._start(open_turn)
        return Claim(
            lease=Lease(conversation_id, _principal(row, open_turn), self._owner, row.fence),
            turn_id=open_turn.turn.id if open_turn else None,
            attempt=open_turn.turn.attempt if open_turn else 0,
            next_seq=row.next_seq,
            last_hash=row.last_hash,
            cursor=row.cursor,
            inbox_seq=row.inbox_seq,
            unannounced=unannounced,
        )

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
        ends_s = self._platform.clock.monotonic() + self._ttl_s
        renewed: dict[ConversationId, int | None] = {}
        for conversation_id, fence in held.items():
            row = self._platform.conversations.get(conversation_id)
            if row is not None and self._holds(row, fence):
                row.lease_ends_s = ends_s
                renewed[conversation_id] = row.inbox_seq
        return renewed

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        row = self._platform.conversations.get(lease.conversation_id)
        if row is None or row.fence != lease.fence:
            return False
        is_held = self._holds(row, lease.fence)
        if is_held:
            self._platform.end_lease(row)
        open_turn = self._platform.open_turn(lease.conversation_id)
        if is_held and requeue and open_turn is not None:
            open_turn.turn = replace(open_turn.turn, status=TurnStatus.QUEUED)
            self._platform.ring(open_turn)
            row.state = ConversationState.QUEUED
        return any(self._find_work(lease.conversation_id))

    async def load_announce_attempts(self, lease: Lease, turn_id: TurnId) -> int:
        return self._ended(lease, turn_id).turn.attempt

    async def save_announce_attempts(self, lease: Lease, turn_id: TurnId, attempts: int) -> None:
        turn = self._ended(lease, turn_id)
        turn.turn = replace(turn.turn, attempt=attempts)

    async def mark_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        row = self._platform.conversations.get(lease.conversation_id)
        if row is None or row.fence != lease.fence:
            raise StaleFence(lease.conversation_id)
        self._platform.turn(lease.principal, turn_id).announced = True
        row.cursor = cursor

    async def release_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> bool:
        row, ended = self._platform.conversations.get(lease.conversation_id), self._platform.turns.get(turn_id)
        if row is None or ended is None or (row.fence != lease.fence and not ended.announced):
            raise StaleFence(lease.conversation_id)
        if row.fence == lease.fence:
            ended.announced, row.cursor = True, cursor
        return await self.release(lease, requeue=False)

    def _find_work(self, conversation_id: ConversationId) -> tuple[TurnRow | None, tuple[TurnId, ...]]:
        """The open turn, unless it waits for a person, and the ended turns that were not announced."""
        found = self._platform.open_turn(conversation_id)
        unannounced = tuple(
            ended.turn.id
            for ended in self._platform.turns_of(conversation_id)
            if not ended.turn.status.is_open and not ended.announced
        )
        return None if found and found.turn.status is TurnStatus.WAITING else found, unannounced

    def _start(self, row: TurnRow) -> None:
        turn = row.turn
        row.turn = replace(
            turn,
            status=TurnStatus.RUNNING,
            attempt=turn.attempt + (turn.status is TurnStatus.RUNNING),
            started_at=turn.started_at or self._platform.clock.now(),
        )

    def _ended(self, lease: Lease, turn_id: TurnId) -> TurnRow:
        row = self._platform.conversations.get(lease.conversation_id)
        turn = self._platform.turn(lease.principal, turn_id)
        if row is None or row.fence != lease.fence or turn.turn.status.is_open:
            raise StaleFence(lease.conversation_id)
        return turn

    def _holds(self, row: ConversationRow, fence: int) -> bool:
        return row.lease_owner == self._owner and row.fence == fence


def _principal(row: ConversationRow, open_turn: TurnRow | None) -> Principal:
    return replace(row.principal, roles=open_turn.roles) if open_turn else row.principal
