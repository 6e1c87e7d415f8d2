"""A conversation as whole documents, for clients that store one: its timeline with its sources, and its turn logs."""

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from everturn.core.clock import iso
from everturn.events.turn_view import TurnPage, TurnRecord
from everturn.events.views import StateView, View
from everturn.timeline.blocks import Block
from everturn.timeline.bodies import CompletionBody
from everturn.timeline.sources import Source


class BlockView(View):
    """One block as it is stored. `path` is its ref; `hash` follows from the block before it."""

    seq: int
    turn_id: str
    round: int
    type: str
    author: str
    path: str
    call_id: str | None = None
    ts: str
    ts_first: str | None = None
    body: dict[str, Any]
    hash: str


class SourceView(View):
    """One row of the source pool. `text` is the beginning of its text, which has `text_chars` characters."""

    sid: int
    title: str
    url: str
    source_type: Literal["web", "file", "attachment", "manual"]
    objective_relevance: float | None = None
    published_time_iso: str | None = None
    favicon_url: str | None = None
    mime: str = ""
    text: str = ""
    text_chars: int = 0
    used: bool = False


class TimelineView(View):
    """The blocks of the requested turns, and all sources of the conversation by `sid`."""

    version: Literal[1] = 1
    conversation_id: str
    conversation_title: str
    conversation_started_at: str
    last_activity_at: str
    turn_ids: tuple[str, ...]
    blocks: tuple[BlockView, ...]
    sources_pool: tuple[SourceView, ...]


class TurnLogView(View):
    """The log of one turn: its blocks by `seq`, the sources its answers cite, and its tokens, input and output."""

    turn_id: str
    ts: str
    end_ts: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    blocks_count: int
    sources_used: tuple[int, ...] = ()
    tokens: int


class DerivedArtifacts(View):
    """Documents built from rows for one response; they are not stored."""

    timeline: TimelineView = Field(serialization_alias="conv.timeline.v1")
    turn_log: tuple[TurnLogView, ...] = Field(serialization_alias="turn.log")


class FetchView(StateView):
    """A conversation with its last turns; the documents only if they were requested."""

    artifacts: DerivedArtifacts | None = None


# Builds the documents of a conversation from its rows: its timeline with its source pool, and its turn logs.


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
