"""What REST reads of turns, in memory; and sweeps that find nothing."""

from collections.abc import Sequence

from everturn.conversations.model import Conversation
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.turn_view import TurnPage, TurnRecord
from everturn.timeline.turns import Turn
from everturn.turns.ports import PAGE_BYTES, Ring
from everturn_testing.core import BEGINNING
from everturn_testing.in_memory_platform import MemoryPlatform


class MemoryTurns:
    """Implements TurnPages: what REST reads, from the rows as they are."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform
        self.poisoned: set[TurnId] = set()
        """Turns whose rows make their reader crash."""

    async def load_page(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        *,
        turn_ids: Sequence[TurnId] | None = None,
        cursor: str | None = None,
        limit: int = 20,
        with_feedback: bool = False,
        max_bytes: int = PAGE_BYTES,
    ) -> TurnPage:
        if self.poisoned.intersection(turn_ids or ()):
            raise ValueError("a row that nobody can read")
        return self.read(conversation_id, turn_ids)

    def read(self, conversation_id: ConversationId, turn_ids: Sequence[TurnId] | None = None) -> TurnPage:
        row = self._platform.conversations[conversation_id]
        turns = [item.turn for item in self._platform.turns_of(conversation_id)]
        conversation = Conversation(
            id=row.id,
            title=row.title,
            state=row.state,
            bundle_id=row.bundle_id,
            archived=False,
            created_at=BEGINNING,
            last_activity_at=BEGINNING,
        )
        records = tuple(self._record(turn) for turn in turns if turn_ids is None or turn.id in turn_ids)
        return TurnPage(conversation, records, row.cursor, None)

    def _record(self, turn: Turn) -> TurnRecord:
        blocks = self._platform.conversations[turn.conversation_id].blocks
        signals = sorted(
            (row for row in self._platform.signals.values() if row.signal.turn_id == turn.id),
            key=lambda row: row.inbox_seq,
        )
        return TurnRecord(
            turn,
            tuple(block for block in blocks if block.turn_id == turn.id),
            tuple(row.signal for row in signals),
        )


class NoSweeps:
    """Implements Sweeps: nothing waits elsewhere."""

    async def claim_due_doorbells(self, *, takeovers: bool) -> tuple[Ring, ...]:
        return ()

    async def claim_next_doorbells(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        return ()
