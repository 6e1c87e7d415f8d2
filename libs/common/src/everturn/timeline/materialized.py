"""Builds the documents of a conversation from its rows: its timeline with its source pool, and its turn logs."""

import json
from collections.abc import Iterable

from everturn.model.block_bodies import CompletionBody
from everturn.model.blocks import Block
from everturn.model.llm.sources import Source
from everturn.timeline.conversation_state import TurnPage
from everturn.timeline.turn_view import TurnRecord
from everturn.wire.materialized import BlockView, DerivedArtifacts, SourceView, TimelineView, TurnLogView
from everturn.wire.times import iso


def build_derived_artifacts(page: TurnPage, sources: Iterable[Source]) -> DerivedArtifacts:
    """The documents of the page's turns; the pool is the whole conversation's."""
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
