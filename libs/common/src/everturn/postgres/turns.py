"""Turns in Postgres as clients read them back: rows, blocks, signals and feedback in one snapshot of the database."""

from collections.abc import Sequence

from sqlalchemy import ARRAY, ColumnElement, Select, Text, any_, func, literal, select

from everturn.errors import Invalid, NotFound
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.postgres.database import Connection, Database, Row
from everturn.postgres.rows import (
    read_block,
    read_conversation,
    read_cursor,
    read_feedback,
    read_signal,
    read_turn,
)
from everturn.postgres.statements import fetch_row, fetch_rows
from everturn.postgres.tables import blocks, conversations, feedback, signals, turns
from everturn.timeline.conversation_state import TurnPage
from everturn.timeline.turn_view import TurnRecord

_MAX_ORDINAL_DIGITS = 9
_MAX_SEQ = (1 << 63) - 1


class PostgresTurns:
    """Reads whole turns; an id among `turn_ids` that names no turn of the conversation is passed over."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_page(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        *,
        turn_ids: Sequence[TurnId] | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> TurnPage:
        page_query = _build_page_query(conversation_id, turn_ids, cursor).limit(limit + 1)
        async with self._database.transaction(principal, isolation="repeatable_read", readonly=True) as transaction:
            conversation = await fetch_row(
                transaction, select(conversations).where(conversations.c.id == conversation_id)
            )
            if conversation is None:
                raise NotFound(conversation_id)
            newest_first = await fetch_rows(transaction, page_query)
            page = newest_first[:limit][::-1]
            records = await _load_records(transaction, conversation_id, page)
        return TurnPage(
            conversation=read_conversation(conversation),
            turns=records,
            cursor=read_cursor(conversation["event_cursor"]),
            next_cursor=str(page[0]["ordinal"]) if len(newest_first) > limit else None,
        )


def _build_page_query(
    conversation_id: ConversationId, turn_ids: Sequence[TurnId] | None, cursor: str | None
) -> Select[*tuple[object, ...]]:
    statement = select(turns).where(turns.c.conversation_id == conversation_id)
    if turn_ids is not None:
        statement = statement.where(turns.c.id == any_(_ids(turn_ids)))
    if cursor is not None:
        statement = statement.where(turns.c.ordinal < _read_ordinal(cursor))
    return statement.order_by(turns.c.ordinal.desc())


def _read_ordinal(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_ORDINAL_DIGITS):
        raise Invalid("This cursor is none of ours.")
    return int(cursor)


async def _load_records(
    transaction: Connection, conversation_id: ConversationId, page: Sequence[Row]
) -> tuple[TurnRecord, ...]:
    ids = _ids([row["id"] for row in page])
    block_rows = await fetch_rows(transaction, _build_block_query(conversation_id, page)) if page else ()
    signal_rows = await fetch_rows(
        transaction, select(signals).where(signals.c.turn_id == any_(ids)).order_by(signals.c.inbox_seq)
    )
    feedback_rows = await fetch_rows(
        transaction, select(feedback).where(feedback.c.turn_id == any_(ids)).order_by(feedback.c.ts, feedback.c.id)
    )
    return tuple(
        TurnRecord(
            turn=read_turn(row),
            blocks=tuple(read_block(block) for block in block_rows if block["turn_id"] == row["id"]),
            signals=tuple(read_signal(signal) for signal in signal_rows if signal["turn_id"] == row["id"]),
            feedback=tuple(read_feedback(judged) for judged in feedback_rows if judged["turn_id"] == row["id"]),
        )
        for row in page
    )


def _build_block_query(conversation_id: ConversationId, page: Sequence[Row]) -> Select[*tuple[object, ...]]:
    """By seq, which the primary key finds: from where the first turn begins to where the one after the last does."""
    begins = [row["first_seq"] for row in page if row["first_seq"] is not None]
    next_begin = (
        select(turns.c.first_seq)
        .where(turns.c.conversation_id == conversation_id, turns.c.ordinal == page[-1]["ordinal"] + 1)
        .scalar_subquery()
    )
    return (
        select(blocks)
        .where(
            blocks.c.conversation_id == conversation_id,
            blocks.c.seq >= min(begins, default=_MAX_SEQ),
            blocks.c.seq < func.coalesce(next_begin, _MAX_SEQ),
            blocks.c.turn_id == any_(_ids([row["id"] for row in page])),
        )
        .order_by(blocks.c.seq)
    )


def _ids(ids: Sequence[str]) -> ColumnElement[Sequence[str]]:
    return literal(list(ids), ARRAY(Text))
