"""The lines of an exported conversation: a header, its blocks, artifacts, signals and feedback, and an end line."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId

FORMAT = "everturn.export.v1"
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]

PAGE_ROWS = 200
PAGE_BYTES = 1_000_000
"""Limit for texts in one page; a single longer row gets its own page."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class HeaderLine(_Line):
    """The first line. `blocks` and `last_hash` are as of the beginning of the export. Times are ISO 8601 in UTC."""

    line: Literal["header"] = "header"
    format: Literal["everturn.export.v1"] = FORMAT
    conversation_id: str
    title: str
    bundle_id: str | None
    created_at: str
    last_activity_at: str
    blocks: Count
    last_hash: Sha256


class BlockLine(_Line):
    """One block. `body` is the stored JSON text, which the hash covers; `previous` is the previous block's hash."""

    line: Literal["block"] = "block"
    seq: int
    turn_id: str
    round: int
    type: str
    ref: str
    call_id: str | None
    body: str
    ts: str
    ts_first: str | None
    previous: Sha256
    hash: Sha256


class ArtifactLine(_Line):
    """A stored file without its bytes; `sha256` is their hash, `size` their number."""

    line: Literal["artifact"] = "artifact"
    artifact_id: str
    turn_id: str
    ref: str
    rn: str
    kind: str
    filename: str
    mime: str
    size: Count
    sha256: Sha256
    visibility: str
    verdict: str
    description: str
    removed: bool
    created_at: str


class SignalLine(_Line):
    """A signal to a turn. `attachments` are ids of artifacts; `event` is set for external events, `approval_id` for
    answers to an approval."""

    line: Literal["signal"] = "signal"
    signal_id: str
    turn_id: str | None
    kind: str
    state: str
    text: str
    attachments: tuple[str, ...] = Field(strict=False)
    event: dict[str, Any] | None
    approval_id: str | None = None
    round: int | None
    promoted_to: str | None
    created_at: str


class FeedbackLine(_Line):
    """A rating of a turn."""

    line: Literal["feedback"] = "feedback"
    turn_id: str
    origin: str
    reaction: str | None
    text: str
    confidence: float | None
    ts: str


class BrokenLine(_Line):
    """The last line of an interrupted export."""

    line: Literal["broken"] = "broken"
    detail: str


class EndLine(_Line):
    """The last line: the number of lines of each kind, and the hash of the last block."""

    line: Literal["end"] = "end"
    blocks: Count
    artifacts: Count
    signals: Count
    feedback: Count
    last_hash: Sha256


ExportLine = Annotated[
    HeaderLine | BlockLine | ArtifactLine | SignalLine | FeedbackLine | BrokenLine | EndLine,
    Field(discriminator="line"),
]
EXPORT_LINE: TypeAdapter[ExportLine] = TypeAdapter(ExportLine)


class Section(StrEnum):
    """The sections after the blocks, in this order."""

    ARTIFACTS = "artifacts"
    SIGNALS = "signals"
    FEEDBACK = "feedback"


@dataclass(frozen=True, slots=True)
class ExportPage:
    """Rows in order, and the position of the next page; an empty page is the end."""

    lines: tuple[ArtifactLine | SignalLine | FeedbackLine, ...]
    after: str


class Exports(Protocol):
    """All calls see only the principal's own conversations; any other id raises NotFound, or returns no rows."""

    async def load_header(self, principal: Principal, conversation_id: ConversationId) -> HeaderLine: ...

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, *, after: BlockLine | None, last_seq: int
    ) -> tuple[BlockLine, ...]:
        """The blocks after `after`, or from the first one, up to `last_seq`: at most a page."""
        ...

    async def load_page(
        self, principal: Principal, conversation_id: ConversationId, section: Section, *, after: str
    ) -> ExportPage:
        """A page of rows; `after` is empty for the first one. Rows written meanwhile can be missing."""
        ...
