"""Feedback in Postgres: one judgement of the user for each turn, any number of machines'."""

from sqlalchemy import Insert, and_, delete, select
from sqlalchemy.dialects.postgresql import insert

from everturn.errors import NotFound
from everturn.model.feedback import Feedback
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.postgres.database import Database
from everturn.postgres.statements import fetch_row, fetch_rows
from everturn.postgres.tables import feedback as table
from everturn.postgres.tables import turns


class PostgresFeedback:
    """A judgement that says something new is fresh again, though a block tells of the one before."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Feedback:
        turn = select(turns.c.id).where(turns.c.id == feedback.turn_id, turns.c.conversation_id == conversation_id)
        async with self._database.transaction(principal) as transaction:
            if await fetch_row(transaction, turn) is None:
                raise NotFound(feedback.turn_id)
            if feedback.origin == "user" and feedback.reaction is None and not feedback.text:
                clear = delete(table).where(table.c.turn_id == feedback.turn_id, table.c.origin == "user")
                await fetch_rows(transaction, clear)
            else:
                await fetch_rows(transaction, _build_upsert(principal, conversation_id, feedback))
        return feedback


def _build_upsert(principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Insert:
    statement = insert(table).values(
        conversation_id=conversation_id,
        tenant=principal.tenant,
        project=principal.project,
        user_id=principal.user_id,
        turn_id=feedback.turn_id,
        origin=feedback.origin,
        reaction=None if feedback.reaction is None else feedback.reaction.value,
        text=feedback.text,
        confidence=feedback.confidence,
        ts=feedback.ts,
    )
    said = statement.excluded
    same = and_(table.c.reaction.is_not_distinct_from(said.reaction), table.c.text == said.text)
    return statement.on_conflict_do_update(
        index_elements=[table.c.turn_id],
        index_where=table.c.origin == "user",
        set_={
            "reaction": said.reaction,
            "text": said.text,
            "confidence": said.confidence,
            "ts": said.ts,
            "told": and_(table.c.told, same),
        },
    )
