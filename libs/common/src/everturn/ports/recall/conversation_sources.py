"""Reading the source pool of any of the person's conversations."""

from typing import Protocol

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.model.llm.sources import Source


class ConversationSources(Protocol):
    """A part of Timelines. Another person's conversation has no sources."""

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The rows by `sid`, without their whole texts."""
        ...

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        """The whole text of one source; empty if none was fetched. Raises NotFound when there is no such row."""
        ...
