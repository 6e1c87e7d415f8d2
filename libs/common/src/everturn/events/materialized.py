"""A conversation as whole documents, for clients that store one: its timeline with its sources, and its turn logs."""

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from everturn.core.api_model import ApiModel
from everturn.core.clock import iso
from everturn.events.turn_view import TurnPage, TurnRecord
from everturn.events.views import StateView
from everturn.timeline.blocks import Block, CompletionBody
from everturn.timeline.sources import Source


class BlockView(ApiModel):
    """One block as it is stored. `path` is its ref; `hash` follows from the block before it."""

    seq: int
    """The number of the block in its conversation, from 1."""
    turn_id: str
    round: int
    type: str
    """The type of the block."""
    author: str
    """Who wrote the block: the person, the agent or the system."""
    path: str
    """Its reference in the timeline."""
    call_id: str | None = None
    ts: str
    ts_first: str | None = None
    """When its first part was written, in ISO 8601 and UTC."""
    body: dict[str, Any]
    """What the block holds, by its type."""
    hash: str
    """The block's hash, which covers the hash of the block before."""


class SourceView(ApiModel):
    """One row of the source pool. `text` is the beginning of its text, which has `text_chars` characters."""

    sid: int
    """The number that answers cite the source by."""
    title: str
    """The title of the page or file."""
    url: str
    """The address of the page, or the ref of the file."""
    source_type: Literal["web", "file", "attachment", "manual"]
    """What kind of source it is."""
    objective_relevance: float | None = None
    """How well the source fits the question, from 0 to 1."""
    published_time_iso: str | None = None
    """When the source was published."""
    favicon_url: str | None = None
    """The address of the site's icon."""
    mime: str = ""
    text: str = ""
    """The beginning of its text."""
    text_chars: int = 0
    """The length of its text in characters."""
    used: bool = False
    """Whether any answer or file of the conversation cites the source."""


class TimelineView(ApiModel):
    """The blocks of the requested turns, and all sources of the conversation by `sid`."""

    version: Literal[1] = 1
    """The version of the format."""
    conversation_id: str
    conversation_title: str
    """The conversation's title."""
    conversation_started_at: str
    """When the conversation began, in ISO 8601 and UTC."""
    last_activity_at: str
    """When something last happened in it, in ISO 8601 and UTC."""
    turn_ids: tuple[str, ...]
    """The turns' ids."""
    blocks: tuple[BlockView, ...]
    """Blocks of the timeline."""
    sources_pool: tuple[SourceView, ...]
    """All sources of the conversation."""


class TurnLogView(ApiModel):
    """The log of one turn: its blocks by `seq`, the sources its answers cite, and its tokens, input and output."""

    turn_id: str
    ts: str
    end_ts: str | None = None
    """When it ended, in ISO 8601 and UTC."""
    first_seq: int | None = None
    """The number of its first block."""
    last_seq: int | None = None
    """The number of its last block."""
    blocks_count: int
    """How many blocks the turn has."""
    sources_used: tuple[int, ...] = ()
    """The numbers of the sources that its answers cite."""
    tokens: int
    """Input and output tokens of its model calls; 0 until it has ended."""


class DerivedArtifacts(ApiModel):
    """Documents built from rows for one response; they are not stored."""

    timeline: TimelineView = Field(serialization_alias="conv.timeline.v1")
    """The conversation's timeline."""
    turn_log: tuple[TurnLogView, ...] = Field(serialization_alias="turn.log")
    """The logs of the requested turns, one for each."""


class FetchView(StateView):
    """A conversation with its last turns; the documents only if they were requested."""

    artifacts: DerivedArtifacts | None = None
    """The timeline and the turn logs; absent unless they were requested."""


def build_derived_artifacts(page: TurnPage, sources: Iterable[Source]) -> DerivedArtifacts:
    """The documents of the page's turns; the source pool is that of the whole conversation."""
    return DerivedArtifacts(
        timeline=TimelineView(
            conversation_id=page.conversation.id,
            conversation_title=page.conversation.title,
            conversation_started_at=iso(page.conversation.created_at),
            last_activity_at=iso(page.conversation.last_activity_at),
            turn_ids=tuple(record.turn.id for record in page.turns),
            blocks=tuple(_build_block(block) for record in page.turns for block in record.blocks),
            sources_pool=tuple(map(_build_source, sources)),
        ),
        turn_log=tuple(map(_build_log, page.turns)),
    )


def _build_block(block: Block) -> BlockView:
    return BlockView(
        seq=block.seq,
        turn_id=block.turn_id,
        round=block.round,
        type=block.type_name,
        author=block.author.value,
        path=block.ref,
        call_id=block.call_id,
        ts=block.ts,
        ts_first=block.ts_first,
        body=json.loads(block.body_json),
        hash=block.hash,
    )


def _build_source(row: Source) -> SourceView:
    return SourceView(
        sid=row.sid,
        title=row.title,
        url=row.url,
        source_type=row.source_type,
        objective_relevance=row.objective_relevance,
        published_time_iso=row.published_time_iso,
        favicon_url=row.favicon_url,
        mime=row.mime,
        text=row.text,
        text_chars=row.text_chars,
        used=row.used,
    )


def _build_log(record: TurnRecord) -> TurnLogView:
    turn, blocks = record.turn, record.blocks
    answers = [block.body for block in blocks if isinstance(block.body, CompletionBody)]
    return TurnLogView(
        turn_id=turn.id,
        ts=iso(turn.created_at),
        end_ts=iso(turn.ended_at) if turn.ended_at else None,
        first_seq=blocks[0].seq if blocks else None,
        last_seq=blocks[-1].seq if blocks else None,
        blocks_count=len(blocks),
        sources_used=tuple(sorted({sid for body in answers for sid in body.sources_used})),
        tokens=turn.usage.input_tokens + turn.usage.output_tokens if turn.usage else 0,
    )
