"""Rings doorbells for turns that any worker may claim. A ring that fails is not lost: the sweeper rings again."""

import structlog

from everturn.core.errors import EverturnError, Unavailable
from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.core.loops import guarded
from everturn.queue.model import Doorbells
from everturn.turns.ports import Sweeps

_log = structlog.get_logger(__name__)


class Ringer:
    """Rings for conversations with work. Failures are only logged: the rows stay, and the sweeper rings for them."""

    def __init__(self, doorbells: Doorbells, sweeps: Sweeps) -> None:
        self._doorbells = doorbells
        self._sweeps = sweeps

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        """Ring the doorbell of this conversation."""
        try:
            await self._doorbells.ring(lane, conversation_id)
        except Unavailable as error:
            _log.warning("Could not ring the doorbell", conversation_id=conversation_id, error=str(error))

    async def ring_next(self, conversation_id: ConversationId) -> None:
        """Ring for the next turns of the conversation's tenant, after one was claimed and left its place on the
        lane."""
        try:
            # It runs concurrently with a turn, and none of its errors may end that turn.
            with guarded("next_turn_ring", passing=(EverturnError,), conversation_id=conversation_id):
                for ring in await self._sweeps.claim_next_doorbells(conversation_id):
                    await self._doorbells.ring(ring.lane, ring.conversation_id)
        except EverturnError as error:
            _log.warning("Could not ring the doorbell of the next turn", error=str(error))
