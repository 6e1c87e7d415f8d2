"""Reading a whole conversation out, a page at a time."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.wire.export import ArtifactLine, BlockLine, FeedbackLine, HeaderLine, SignalLine

PAGE_ROWS = 200
PAGE_BYTES = 1_000_000
"""Of texts in one page; a single longer row is a page of its own."""


class Section(StrEnum):
    """What follows the blocks, in this order."""

    ARTIFACTS = "artifacts"
    SIGNALS = "signals"
    FEEDBACK = "feedback"


@dataclass(frozen=True, slots=True)
class ExportPage:
    """Rows in order, and where the next page begins; no rows: there are no more."""

    lines: tuple[ArtifactLine | SignalLine | FeedbackLine, ...]
    after: str


class Exports(Protocol):
    """All calls see only the principal's own conversations; another's id is NotFound, or without rows."""

    async def load_header(self, principal: Principal, conversation_id: ConversationId) -> HeaderLine: ...

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, *, after: BlockLine | None, last_seq: int
    ) -> tuple[BlockLine, ...]:
        """The blocks that follow `after`, from the first one without it, up to `last_seq`: at most a page of them."""
        ...

    async def load_page(
        self, principal: Principal, conversation_id: ConversationId, section: Section, *, after: str
    ) -> ExportPage:
        """A page of rows; `after` is empty for the first one. What is written meanwhile may be in it or not."""
        ...
