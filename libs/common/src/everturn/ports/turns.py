"""Reading conversations back: the rows from which the client's state is built, in one consistent read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from everturn.model.blocks import Block
from everturn.model.conversations import Conversation
from everturn.model.feedback import Feedback
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.leases import EventCursor
from everturn.model.signals import Signal
from everturn.model.turns import Turn


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn with everything that hangs on it; blocks in order of `seq`."""

    turn: Turn
    blocks: tuple[Block, ...]
    signals: tuple[Signal, ...]
    feedback: tuple[Feedback, ...]


@dataclass(frozen=True, slots=True)
class TurnPage:
    """Turns oldest first, all read in one snapshot together with `cursor`, the event id they include.

    `next_cursor` goes on to older turns, None when there are none.
    """

    conversation: Conversation
    turns: tuple[TurnRecord, ...]
    cursor: EventCursor
    next_cursor: str | None


class Turns(Protocol):
    """All calls see only the principal's own conversations; another's id is NotFound."""

    async def load_page(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        *,
        turn_ids: Sequence[TurnId] | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> TurnPage:
        """The last `limit` turns, or those before `cursor`, or just the named ones. Raises Invalid for a bad cursor."""
        ...
