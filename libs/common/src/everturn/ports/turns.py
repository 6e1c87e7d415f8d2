"""Reading conversations back: the rows from which the client's state is built, in one consistent read."""

from collections.abc import Sequence
from typing import Protocol

from everturn.model.blocks import Block
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.llm.sources import Source
from everturn.timeline.conversation_state import TurnPage
from everturn.timeline.turn_view import TurnRecord

__all__ = ["PAGE_BYTES", "TurnPage", "TurnRecord", "Turns"]

PAGE_BYTES = 4 * 1024 * 1024
"""Of all that is stored of the turns of one page; a single larger turn is a page of its own. The process that answers
holds it a few times over."""


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
        judged: bool = False,
    ) -> TurnPage:
        """The newest of all turns, of those before `cursor`, of the named ones, and of those with feedback (`judged`).

        As many as fit into `limit` and PAGE_BYTES. Raises BadCursor.
        """
        ...

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The source pool by `sid`, without whole texts; empty where there is none to see."""
        ...

    async def load_ordinal(self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId) -> int:
        """The turn's place in this conversation, from 1. Raises NotFound when it is none of its turns."""
        ...

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, seqs: Sequence[int]
    ) -> tuple[Block, ...]:
        """The blocks with these numbers, in order; those that there are."""
        ...
